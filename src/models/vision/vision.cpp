// SPDX-License-Identifier: Apache-2.0
#include "models/vision/vision.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>

#include <cmath>
#include <utility>

#include "base/error.h"
#include "core/nn/attention.h"
#include "core/ops/pictures.h"

namespace snug::models::vision {
namespace {

std::string of_embeddings(const Config& c, const std::string& name) {
  return c.form.prefix + ("embeddings." + name);
}

std::string vision_layer_name(const Config& c, int64_t index) {
  return c.form.prefix + ("encoder.layers." + std::to_string(index) + ".");
}

nn::Parameter free_parameter(const Config& c, const char* name, std::vector<int64_t> shape) {
  return {.name = of_embeddings(c, name),
          .shape = std::move(shape),
          .role = nn::ParameterRole::Embedding,
          .init_scale = c.initializer_range,
          .value = {}};
}

std::optional<nn::Parameter> class_token(const Config& c) {
  if (!c.form.class_token) return std::nullopt;
  return free_parameter(c, "class_embedding", {1, c.hidden_size});
}

std::vector<nn::Linear> qkv_layers(const Config& c, const std::string& attention) {
  const int64_t d = c.hidden_size;
  const nn::Bias bias = c.qkv_bias ? nn::Bias::Present : nn::Bias::None;
  if (c.form.fused_qkv)
    return {make_linear(attention + "qkv", d, 3 * d, bias, c.initializer_range)};
  std::vector<nn::Linear> layers;
  for (const char* name : {"q_proj", "k_proj", "v_proj"})
    layers.push_back(make_linear(attention + name, d, d, bias, c.initializer_range));
  return layers;
}

void check_size(const at::Tensor& pixels, int64_t image_size) {
  if (pixels.dim() == 4 && pixels.size(1) == image_size && pixels.size(2) == image_size) return;
  throw UserError(
      "pictures have {} x {} pixels, but this model's positions are for {} x {} "
      "(vision_config.image_size in its config.json); resize them",
      pixels.size(2), pixels.size(1), image_size, image_size);
}

}  // namespace

VisionEmbeddings::VisionEmbeddings(const Config& c, const Pixels& pixels)
    : PictureUnit("vision embeddings", nn::UnitKind::Embedding),
      config_(c),
      pixels_(pixels),
      class_(class_token(c)),
      position_(free_parameter(c, c.form.positions, {c.num_positions(), c.hidden_size})),
      patch_(make_linear(of_embeddings(c, "patch_embedding"), 3 * c.patch_size * c.patch_size,
                         c.hidden_size, nn::Bias::Present, c.initializer_range)) {}

std::vector<nn::Parameter*> VisionEmbeddings::parameters() {
  std::vector<nn::Parameter*> all;
  if (class_) all.push_back(&*class_);
  all.push_back(&position_);
  patch_.list(all);
  return all;
}

std::vector<Product> VisionEmbeddings::products() { return {{&patch_, config_.num_patches()}}; }

// Compared by name, since the parameter may belong to a copy of the model. Free parameters have a
// first dimension of one where the vision model has a class token.
std::vector<int64_t> VisionEmbeddings::file_shape(const nn::Parameter& parameter) const {
  const Config& c = config_;
  if (class_ && parameter.name == class_->name) return {1, 1, c.hidden_size};
  if (class_ && parameter.name == position_.name) return {1, c.num_positions(), c.hidden_size};
  if (parameter.name == patch_.weight().name) return {c.hidden_size, 3, c.patch_size, c.patch_size};
  return {};
}

nn::State VisionEmbeddings::look(const nn::State& /*input*/, const nn::Batch& batch,
                                 const nn::Pass& pass) {
  const Config& c = config_;
  check_size(batch.pixels, c.image_size);
  const int64_t pictures = batch.pixels.size(0);
  const at::Tensor patches = ops::image_patches(
      batch.pixels, {.patch_size = c.patch_size, .mean = pixels_.mean, .std = pixels_.std},
      pass.compute);
  const at::Tensor seen =
      patch_.forward(patches, pass).view({pictures, c.num_patches(), c.hidden_size});
  const at::Tensor places = nn::trained_input(position_, pass.compute);
  at::Tensor all;  // (S, P, D)
  if (class_)
    all = at::cat({nn::trained_input(*class_, pass.compute).expand({pictures, 1, -1}), seen}, 1)
              .add_(places);
  else
    all = at::add(seen, places);
  nn::State state;
  state.set("vision", nn::own_rows(all.view({-1, c.hidden_size}), position_));
  return state;
}

VisionBlock::VisionBlock(const Config& c, int64_t index)
    : PictureUnit("vision block " + std::to_string(index), nn::UnitKind::Block),
      config_(c),
      norm1_(vision_layer_name(c, index) + "layer_norm1", c.hidden_size, c.layer_norm_eps),
      qkv_(qkv_layers(c, vision_layer_name(c, index) + "self_attn.")),
      projection_(make_linear(vision_layer_name(c, index) + "self_attn." + c.form.output,
                              c.hidden_size, c.hidden_size, nn::Bias::Present,
                              c.initializer_range)),
      norm2_(vision_layer_name(c, index) + "layer_norm2", c.hidden_size, c.layer_norm_eps),
      fc1_(make_linear(vision_layer_name(c, index) + "mlp.fc1", c.hidden_size, c.intermediate_size,
                       nn::Bias::Present, c.initializer_range)),
      fc2_(make_linear(vision_layer_name(c, index) + "mlp.fc2", c.intermediate_size, c.hidden_size,
                       nn::Bias::Present, c.initializer_range)) {}

std::vector<nn::Parameter*> VisionBlock::parameters() {
  std::vector<nn::Parameter*> all;
  norm1_.list(all);
  for (nn::Linear& linear : qkv_) linear.list(all);
  projection_.list(all);
  norm2_.list(all);
  for (nn::Linear* linear : {&fc1_, &fc2_}) linear->list(all);
  return all;
}

std::vector<nn::Linear*> VisionBlock::linears() {
  std::vector<nn::Linear*> all;
  for (nn::Linear& linear : qkv_) all.push_back(&linear);
  for (nn::Linear* linear : {&projection_, &fc1_, &fc2_}) all.push_back(linear);
  return all;
}

std::vector<Product> VisionBlock::products() {
  std::vector<Product> all;
  for (nn::Linear* linear : linears()) all.push_back({linear, config_.num_positions()});
  return all;
}

double VisionBlock::attention_products() const {
  const auto positions = static_cast<double>(config_.num_positions());
  return 2 * positions * positions * static_cast<double>(config_.hidden_size);
}

int64_t VisionBlock::num_rows(const nn::Batch& batch) const {
  return batch.pixels.size(0) * config_.num_positions();
}

at::Tensor VisionBlock::attend(const at::Tensor& x, const nn::Batch& batch,
                               const nn::Pass& pass) const {
  const int64_t d = config_.head_dim();
  std::vector<const nn::Linear*> layers;
  for (const nn::Linear& layer : qkv_) layers.push_back(&layer);
  std::vector<at::Tensor> qkv = nn::project(x, layers, num_rows(batch), pass);
  if (config_.form.fused_qkv)  // views of the product, so that its gradient is one tensor
    qkv = qkv[0].view({-1, 3, qkv[0].size(1) / (3 * d), d}).unbind(1);
  else
    for (at::Tensor& heads : qkv) heads = nn::split_heads(heads, d);
  const nn::Packed pictures =
      nn::even_sequences(batch.pixels.size(0), config_.num_positions(), x.device());
  return projection_.forward(nn::full_attention(qkv[0], qkv[1], qkv[2], pictures,
                                                {.scale = 1.0 / std::sqrt(static_cast<double>(d)),
                                                 .dropout = config_.attention_dropout,
                                                 .site = qkv_.front().name() + ".probabilities",
                                                 .queries = &qkv_.front()},
                                                pass),
                             pass);
}

nn::State VisionBlock::look(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) {
  const at::Tensor& vision = input.at("vision");
  auto [beside, read] = norm1_.forward_beside(vision);
  const auto [sum, x] = norm2_.forward_sum(beside, attend(std::exchange(read, {}), batch, pass));
  const std::vector<at::Tensor> wide = nn::project(x, {&fc1_}, num_rows(batch), pass);
  nn::State state;
  state.set("vision", at::add(sum, fc2_.forward_activated(wide[0], config_.activation, pass)));
  return state;
}

VisionNorm::VisionNorm(const Config& config)
    : PictureUnit("vision norm", nn::UnitKind::Norm),
      config_(config),
      norm_(std::string(config.form.prefix) + "post_layernorm", config.hidden_size,
            config.layer_norm_eps) {}

std::vector<nn::Parameter*> VisionNorm::parameters() {
  std::vector<nn::Parameter*> all;
  norm_.list(all);
  return all;
}

nn::State VisionNorm::look(const nn::State& input, const nn::Batch& batch,
                           const nn::Pass& /*pass*/) {
  const int64_t num_rows = batch.pixels.size(0) * config_.num_positions();
  nn::State state;
  state.set("vision", nn::all_rows(norm_.forward(input.at("vision")), norm_.weight, num_rows));
  return state;
}

}  // namespace snug::models::vision
