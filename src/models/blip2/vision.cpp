// SPDX-License-Identifier: Apache-2.0
#include "models/blip2/vision.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>

#include <cmath>
#include <utility>

#include "base/error.h"
#include "core/nn/attention.h"
#include "core/ops/pictures.h"

namespace snug::models::blip2 {
namespace {

std::string of_embeddings(const char* name) {
  std::string full = "vision_model.embeddings.";
  full += name;
  return full;
}

std::string vision_layer_name(int64_t index) {
  return "vision_model.encoder.layers." + std::to_string(index) + ".";
}

nn::Parameter free_parameter(const char* name, std::vector<int64_t> shape, double deviation) {
  return {.name = of_embeddings(name),
          .shape = std::move(shape),
          .role = nn::ParameterRole::Embedding,
          .init_scale = deviation,
          .value = {}};
}

void check_size(const at::Tensor& pixels, int64_t image_size) {
  if (pixels.dim() == 4 && pixels.size(1) == image_size && pixels.size(2) == image_size) return;
  throw UserError(
      "pictures have {} x {} pixels, but this model's positions are for {} x {} "
      "(vision_config.image_size in its config.json); resize them",
      pixels.size(2), pixels.size(1), image_size, image_size);
}

}  // namespace

VisionEmbeddings::VisionEmbeddings(const Config& config)
    : PictureUnit("vision embeddings", nn::UnitKind::Embedding),
      config_(config),
      class_(free_parameter("class_embedding", {1, config.vision.hidden_size},
                            config.vision.initializer_range)),
      position_(free_parameter("position_embedding",
                               {config.vision.num_positions(), config.vision.hidden_size},
                               config.vision.initializer_range)),
      patch_(make_linear(
          of_embeddings("patch_embedding"), 3 * config.vision.patch_size * config.vision.patch_size,
          config.vision.hidden_size, nn::Bias::Present, config.vision.initializer_range)) {}

std::vector<nn::Parameter*> VisionEmbeddings::parameters() {
  std::vector<nn::Parameter*> all{&class_, &position_};
  patch_.list(all);
  return all;
}

std::vector<Product> VisionEmbeddings::products() {
  return {{&patch_, config_.vision.num_patches()}};
}

std::vector<int64_t> VisionEmbeddings::file_shape(const nn::Parameter& parameter) const {
  const VisionConfig& c = config_.vision;
  // Compared by name, since the parameter may belong to a copy of the model.
  if (parameter.name == class_.name) return {1, 1, c.hidden_size};
  if (parameter.name == position_.name) return {1, c.num_positions(), c.hidden_size};
  if (parameter.name == patch_.weight().name) return {c.hidden_size, 3, c.patch_size, c.patch_size};
  return {};
}

nn::State VisionEmbeddings::look(const nn::State& /*input*/, const nn::Batch& batch,
                                 const nn::Pass& pass) {
  const VisionConfig& c = config_.vision;
  check_size(batch.pixels, c.image_size);
  const int64_t pictures = batch.pixels.size(0);
  const at::Tensor patches = ops::image_patches(
      batch.pixels,
      {.patch_size = c.patch_size, .mean = config_.pixels.mean, .std = config_.pixels.std},
      pass.compute);
  const at::Tensor seen =
      patch_.forward(patches, pass).view({pictures, c.num_patches(), c.hidden_size});
  const at::Tensor first =
      nn::trained_input(class_, pass.compute).expand({pictures, 1, c.hidden_size});
  at::Tensor all = at::cat({first, seen}, 1);  // (S, P, D)
  all.add_(nn::trained_input(position_, pass.compute));
  nn::State state;
  state.set("vision", nn::own_rows(all.view({-1, c.hidden_size}), position_));
  return state;
}

VisionBlock::VisionBlock(const VisionConfig& c, int64_t index)
    : PictureUnit("vision block " + std::to_string(index), nn::UnitKind::Block),
      config_(c),
      norm1_(vision_layer_name(index) + "layer_norm1", c.hidden_size, c.layer_norm_eps),
      qkv_(make_linear(vision_layer_name(index) + "self_attn.qkv", c.hidden_size, 3 * c.hidden_size,
                       c.qkv_bias ? nn::Bias::Present : nn::Bias::None, c.initializer_range)),
      projection_(make_linear(vision_layer_name(index) + "self_attn.projection", c.hidden_size,
                              c.hidden_size, nn::Bias::Present, c.initializer_range)),
      norm2_(vision_layer_name(index) + "layer_norm2", c.hidden_size, c.layer_norm_eps),
      fc1_(make_linear(vision_layer_name(index) + "mlp.fc1", c.hidden_size, c.intermediate_size,
                       nn::Bias::Present, c.initializer_range)),
      fc2_(make_linear(vision_layer_name(index) + "mlp.fc2", c.intermediate_size, c.hidden_size,
                       nn::Bias::Present, c.initializer_range)) {}

std::vector<nn::Parameter*> VisionBlock::parameters() {
  std::vector<nn::Parameter*> all;
  norm1_.list(all);
  for (nn::Linear* linear : {&qkv_, &projection_}) linear->list(all);
  norm2_.list(all);
  for (nn::Linear* linear : {&fc1_, &fc2_}) linear->list(all);
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
  // Views of the fused q, k, v product, so that its gradient is assembled in one tensor.
  const at::Tensor all = nn::project(x, {&qkv_}, num_rows(batch), pass)[0];
  const std::vector<at::Tensor> qkv = all.view({-1, 3, all.size(1) / (3 * d), d}).unbind(1);
  const nn::Packed pictures =
      nn::even_sequences(batch.pixels.size(0), config_.num_positions(), x.device());
  return projection_.forward(nn::full_attention(qkv[0], qkv[1], qkv[2], pictures,
                                                {.scale = 1.0 / std::sqrt(static_cast<double>(d)),
                                                 .dropout = config_.attention_dropout,
                                                 .site = qkv_.name() + ".probabilities",
                                                 .queries = &qkv_},
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

VisionNorm::VisionNorm(const VisionConfig& config)
    : PictureUnit("vision norm", nn::UnitKind::Norm),
      config_(config),
      norm_("vision_model.post_layernorm", config.hidden_size, config.layer_norm_eps) {}

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

}  // namespace snug::models::blip2
