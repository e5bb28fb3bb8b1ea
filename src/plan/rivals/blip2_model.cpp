// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/blip2_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "core/memory/guards.h"
#include "plan/rivals/operators.h"

namespace snug::plan::rivals {

using nlohmann::json;

Blip2Model::Blip2Model(const json& config, const Options& options) : Model(options) {
  const json& vision = config.at("vision_config");
  make_vision(vision);
  const json& qformer = config.at("qformer_config");
  const int64_t width = number(qformer, "hidden_size", 768);
  queries_ = modules_.weight({1, number(config, "num_query_tokens", 32), width});
  make_qformer(qformer);
  const json& text = config.at("text_config");
  is_t5_ = text.value("model_type", "opt") == std::string("t5");
  projection_ = modules_.linear(width, number(text, is_t5_ ? "d_model" : "hidden_size", 0), true,
                                "language_projection");
  if (is_t5_)
    make_t5(text);
  else
    make_opt(text);
  modules_.share();
}

void Blip2Model::make_vision(const json& config) {
  const int64_t width = number(config, "hidden_size", 1408);
  const int64_t inner = number(config, "intermediate_size", 6144);
  const int64_t patch = number(config, "patch_size", 14);
  image_ = number(config, "image_size", 224);
  vision_heads_ = number(config, "num_attention_heads", 16);
  class_ = modules_.weight({1, 1, width});
  places_ = modules_.weight({1, (image_ / patch) * (image_ / patch) + 1, width});
  patch_weight_ = modules_.weight({width, 3, patch, patch});
  patch_bias_ = modules_.weight({width});
  for (int64_t i = 0; i < number(config, "num_hidden_layers", 39); ++i) {
    VisionLayer layer{.unit = modules_.begin_unit()};
    layer.qkv = modules_.linear(width, 3 * width, config.value("qkv_bias", true), "qkv");
    layer.projection = modules_.linear(width, width, true, "projection");
    layer.norm_1 = modules_.layer_norm(width);
    layer.fc_1 = modules_.linear(width, inner, true, "fc1");
    layer.fc_2 = modules_.linear(inner, width, true, "fc2");
    layer.norm_2 = modules_.layer_norm(width);
    vision_.push_back(layer);
  }
  modules_.end_unit();
  vision_norm_ = modules_.layer_norm(width);
}

// transformers keeps the Q-Former in float32 when it quantizes.
Blip2Model::QFormerAttention Blip2Model::make_qformer_attention(int64_t width, int64_t keys) {
  return {.query = modules_.linear(width, width, true, "query", false),
          .key = modules_.linear(keys, width, true, "key", false),
          .value = modules_.linear(keys, width, true, "value", false),
          .dense = modules_.linear(width, width, true, "dense", false),
          .norm = modules_.layer_norm(width)};
}

void Blip2Model::make_qformer(const json& config) {
  const int64_t width = number(config, "hidden_size", 768);
  const int64_t inner = number(config, "intermediate_size", 3072);
  const int64_t seen = number(config, "encoder_hidden_size", 1408);
  qformer_heads_ = number(config, "num_attention_heads", 12);
  qformer_dropout_ = config.value("hidden_dropout_prob", 0.1);
  qformer_norm_ = modules_.layer_norm(width);
  for (int64_t i = 0; i < number(config, "num_hidden_layers", 12); ++i) {
    QFormerLayer layer{.unit = modules_.begin_unit()};
    layer.self = make_qformer_attention(width, width);
    layer.has_cross = i % number(config, "cross_attention_frequency", 2) == 0;
    if (layer.has_cross) layer.cross = make_qformer_attention(width, seen);
    layer.up = modules_.linear(width, inner, true, "dense", false);
    layer.down = modules_.linear(inner, width, true, "dense", false);
    layer.norm = modules_.layer_norm(width);
    qformer_.push_back(layer);
  }
  modules_.end_unit();
}

void Blip2Model::make_opt(const json& config) {
  const int64_t width = number(config, "hidden_size", 768), inner = number(config, "ffn_dim", 3072);
  heads_ = number(config, "num_attention_heads", 12);
  dropout_ = config.value("dropout", 0.1);
  tokens_ = modules_.weight({number(config, "vocab_size", 50272), width});
  positions_ = modules_.weight({number(config, "max_position_embeddings", 2048) + 2, width});
  final_norm_ = modules_.layer_norm(width);
  for (int64_t i = 0; i < number(config, "num_hidden_layers", 12); ++i) {
    OptLayer layer{.unit = modules_.begin_unit()};
    layer.k = modules_.linear(width, width, true, "k_proj");
    layer.v = modules_.linear(width, width, true, "v_proj");
    layer.q = modules_.linear(width, width, true, "q_proj");
    layer.out = modules_.linear(width, width, true, "out_proj");
    layer.norm_1 = modules_.layer_norm(width);
    layer.fc_1 = modules_.linear(width, inner, true, "fc1");
    layer.fc_2 = modules_.linear(inner, width, true, "fc2");
    layer.norm_2 = modules_.layer_norm(width);
    opt_.push_back(layer);
  }
  modules_.end_unit();
  head_ = {.in = width, .out = tokens_->size(0), .weight = tokens_};  // tied
}

Blip2Model::T5Attention Blip2Model::make_t5_attention(int64_t width, int64_t inner) {
  return {.norm = modules_.rms_norm(width),
          .q = modules_.linear(width, inner, false, "q"),
          .k = modules_.linear(width, inner, false, "k"),
          .v = modules_.linear(width, inner, false, "v"),
          .o = modules_.linear(inner, width, false, "o")};
}

Blip2Model::T5Block Blip2Model::make_t5_block(const json& config, bool decoder) {
  const int64_t width = number(config, "d_model", 512), ff = number(config, "d_ff", 2048);
  const int64_t inner = heads_ * number(config, "d_kv", 64);
  T5Block block{.unit = modules_.begin_unit()};
  block.self = make_t5_attention(width, inner);
  if (decoder) block.cross = make_t5_attention(width, inner);
  block.norm = modules_.rms_norm(width);
  if (gated_) block.gate = modules_.linear(width, ff, false, "wi_0");
  block.up = modules_.linear(width, ff, false, "wi_1");
  block.down = modules_.linear(ff, width, false, "wo", false);
  modules_.end_unit();
  return block;
}

void Blip2Model::make_t5(const json& config) {
  const int64_t width = number(config, "d_model", 512);
  const std::string kind = config.value("feed_forward_proj", "relu");
  heads_ = number(config, "num_heads", 8);
  gated_ = kind.starts_with("gated-");
  // As transformers reads it: the function's own key wins over what the kind makes of it.
  activation_ = config.value("dense_act_fn", gated_ ? "gelu_new" : kind);
  dropout_ = config.value("dropout_rate", 0.1);
  tokens_ = modules_.weight({number(config, "vocab_size", 32128), width});
  const int64_t layers = number(config, "num_layers", 6);
  const int64_t buckets = number(config, "relative_attention_num_buckets", 32);
  encoder_bias_ = modules_.weight({buckets, heads_});
  for (int64_t i = 0; i < layers; ++i) encoder_.push_back(make_t5_block(config, false));
  encoder_norm_ = modules_.rms_norm(width);
  decoder_bias_ = modules_.weight({buckets, heads_});
  for (int64_t i = 0; i < number(config, "num_decoder_layers", layers); ++i)
    decoder_.push_back(make_t5_block(config, true));
  decoder_norm_ = modules_.rms_norm(width);
  if (config.value("tie_word_embeddings", false))
    head_ = {.in = width, .out = tokens_->size(0), .weight = tokens_};
  else
    head_ = modules_.linear(width, tokens_->size(0), false, "lm_head", false);
}

at::Tensor Blip2Model::new_mask(int64_t queries, int64_t keys) const {
  return at::empty({options_.batch, 1, queries, keys},
                   at::TensorOptions(at::kMeta).dtype(at::kBool));
}

at::Tensor Blip2Model::vision_layer(const VisionLayer& layer, const at::Tensor& input) {
  const int64_t B = input.size(0), T = input.size(1), D = input.size(2);
  const at::Tensor qkv = run(layer.qkv, run(layer.norm_1, input))
                             .reshape({B, T, 3, vision_heads_, D / vision_heads_})
                             .permute({2, 0, 3, 1, 4});
  const at::Tensor seen = fused_attention(qkv.select(0, 0), qkv.select(0, 1), qkv.select(0, 2));
  const at::Tensor x = run(layer.projection, join_heads(seen)) + input;
  return run(layer.fc_2, at::gelu(run(layer.fc_1, run(layer.norm_2, x)))) + x;
}

// prepare_model_for_kbit_training does so of every embedding's output, that of pictures included.
void Blip2Model::ask_for_gradient(const at::Tensor& x) const {
  if (modules_.quantized()) x.set_requires_grad(true);
}

at::Tensor Blip2Model::see() {
  at::Tensor x;
  {
    const memory::UnitGuard guard(memory::unit_id("vision embedding"));
    at::Tensor pixels;
    {
      const memory::CategoryGuard category(memory::Category::Data);
      pixels = at::empty({options_.batch, 3, image_, image_},
                         at::TensorOptions(at::kMeta).dtype(at::kFloat));
    }
    outputs_.push_back(pixels);
    const at::Tensor& weight = *patch_weight_;
    // Autocast casts the convolution's inputs, weights included.
    const at::Tensor patches = rivals::patches(modules_.cast(pixels.to(weight.scalar_type())),
                                               modules_.cast(weight), modules_.cast(*patch_bias_))
                                   .flatten(2)
                                   .transpose(1, 2);
    const at::Tensor first = class_->expand({options_.batch, 1, -1});
    x = at::cat({first, patches.to(first.scalar_type())}, 1) + *places_;
    ask_for_gradient(x);
  }
  x = run_blocks("vision", vision_, std::move(x), {},
                 [this](const VisionLayer& layer, const auto& given) {
                   return vision_layer(layer, given[0]);
                 });
  const memory::UnitGuard guard(memory::unit_id("vision norm"));
  return run(vision_norm_, x);
}

at::Tensor Blip2Model::qformer_attention(const QFormerAttention& attention, const at::Tensor& x,
                                         const at::Tensor& from) {
  const at::Tensor q = split_heads(run(attention.query, x), qformer_heads_);
  const at::Tensor k = split_heads(run(attention.key, from), qformer_heads_);
  const at::Tensor v = split_heads(run(attention.value, from), qformer_heads_);
  const at::Tensor out = run(attention.dense, join_heads(fused_attention(q, k, v)));
  return run(attention.norm, drop(out, qformer_dropout_) + x);
}

at::Tensor Blip2Model::qformer_layer(const QFormerLayer& layer, const at::Tensor& input,
                                     const at::Tensor& seen) {
  at::Tensor x = qformer_attention(layer.self, input, input);
  if (layer.has_cross) x = qformer_attention(layer.cross, x, seen);
  const at::Tensor out = run(layer.down, at::gelu(run(layer.up, x)));
  return run(layer.norm, drop(out, qformer_dropout_) + x);
}

at::Tensor Blip2Model::ask(const at::Tensor& seen) {
  at::Tensor x;
  {
    const memory::UnitGuard guard(memory::unit_id("Q-Former embedding"));
    x = queries_->expand({options_.batch, -1, -1});
    x = drop(run(qformer_norm_, x), qformer_dropout_);
  }
  x = run_blocks("Q-Former", qformer_, std::move(x), {seen},
                 [this](const QFormerLayer& layer, const auto& given) {
                   return qformer_layer(layer, given[0], given[1]);
                 });
  const memory::UnitGuard guard(memory::unit_id("projection"));
  return run(projection_, x);
}

at::Tensor Blip2Model::embed(const at::Tensor& picture) {
  const memory::UnitGuard guard(memory::unit_id("embedding"));
  const at::Tensor ids = new_ids(options_.batch, options_.tokens);
  outputs_.push_back(ids);
  const at::Tensor x = embedding(ids, *tokens_);
  ask_for_gradient(x);
  // Where all that comes before adapters is frozen, the first layer that has some is recomputed all
  // the same.
  if (options_.checkpointing && !x.requires_grad()) x.set_requires_grad(true);
  return masked_scatter(x, picture.to(x.scalar_type()));
}

at::Tensor Blip2Model::opt_layer(const OptLayer& layer, const at::Tensor& input,
                                 const at::Tensor& mask) {
  const double scale = 0.5;  // any: shapes only
  const at::Tensor normed = run(layer.norm_1, input);
  const at::Tensor q = split_heads(run(layer.q, normed) * scale, heads_);
  const at::Tensor k = split_heads(run(layer.k, normed), heads_);
  const at::Tensor v = split_heads(run(layer.v, normed), heads_);
  at::Tensor out = run(layer.out, join_heads(fused_attention(q, k, v, mask)));
  const at::Tensor x = (input + drop(out, dropout_)).reshape({-1, input.size(2)});
  out = run(layer.fc_2, relu(run(layer.fc_1, run(layer.norm_2, x))));
  return (x + drop(out, dropout_)).view(input.sizes());
}

at::Tensor Blip2Model::opt_loss(at::Tensor x) {
  const at::Tensor mask = new_mask(options_.tokens, options_.tokens);
  const at::Tensor places = new_ids(options_.batch, options_.tokens);
  x = x + embedding(places, *positions_);
  x = run_blocks("block", opt_, std::move(x), {},
                 [this, mask](const OptLayer& layer, const auto& given) {
                   return opt_layer(layer, given[0], mask);
                 });
  const memory::UnitGuard guard(memory::unit_id("head"));
  const at::Tensor logits = run(head_, run(final_norm_, x));
  outputs_.push_back(logits);
  const at::Tensor targets = new_ids(options_.batch, options_.tokens);
  outputs_.push_back(targets);
  return cross_entropy(logits.to(at::kFloat), targets, -100);
}

at::Tensor Blip2Model::t5_attention(const T5Attention& attention, const at::Tensor& x,
                                    const at::Tensor& from, const at::Tensor& mask,
                                    const at::Tensor& bias) {
  const at::Tensor normed = run(attention.norm, x);
  const at::Tensor& source = from.defined() ? from : normed;
  const at::Tensor q = split_heads(run(attention.q, normed), heads_);
  const at::Tensor k = split_heads(run(attention.k, source), heads_);
  const at::Tensor v = split_heads(run(attention.v, source), heads_);
  const at::Tensor places = masked_bias(mask, bias).to(q.scalar_type());
  const at::Tensor out = run(attention.o, join_heads(fused_attention(q, k, v, places)));
  return x + drop(out, dropout_);
}

at::Tensor Blip2Model::t5_activation(const at::Tensor& x) const {
  if (activation_ == "relu") return relu(x);
  return activation_ == "gelu_new" ? tanh_gelu(x) : at::gelu(x);
}

at::Tensor Blip2Model::t5_feed_forward(const T5Block& block, const at::Tensor& x) {
  const at::Tensor normed = run(block.norm, x);
  at::Tensor inner = t5_activation(run(gated_ ? block.gate : block.up, normed));
  if (gated_) inner = inner * run(block.up, normed);
  inner = drop(inner, dropout_).to(block.down.weight->scalar_type());
  return x + drop(run(block.down, inner), dropout_);
}

at::Tensor Blip2Model::t5_stack(const std::vector<T5Block>& blocks, const char* name, at::Tensor x,
                                const at::Tensor& source, const at::Tensor& mask,
                                const at::Tensor& table) {
  const at::Tensor bias = relative_bias(table, x.size(1), x.size(1));
  at::Tensor across, across_mask;  // of a decoder's look at its source
  if (source.defined()) {
    across = at::zeros({1, heads_, x.size(1), source.size(1)}, x.options().requires_grad(false));
    across_mask = new_mask(x.size(1), source.size(1));
  }
  return run_blocks(name, blocks, std::move(x), {bias, source},
                    [this, mask, across, across_mask](const T5Block& block, const auto& given) {
                      at::Tensor y = t5_attention(block.self, given[0], {}, mask, given[1]);
                      if (given[2].defined())
                        y = t5_attention(block.cross, y, given[2], across_mask, across);
                      return t5_feed_forward(block, y);
                    });
}

at::Tensor Blip2Model::t5_loss(at::Tensor x) {
  const int64_t T = options_.tokens, U = options_.labels > 0 ? options_.labels : T;
  x = t5_stack(encoder_, "encoder", drop(x, dropout_), {}, new_mask(T, T), *encoder_bias_);
  at::Tensor source, y;
  {
    const memory::UnitGuard guard(memory::unit_id("decoder embedding"));
    source = drop(run(encoder_norm_, x), dropout_);
    y = embedding(new_ids(options_.batch, U), *tokens_);
    ask_for_gradient(y);
    y = drop(y, dropout_);
  }
  // The decoder gets no mask of the labels' padding: its mask is causal, the same for all.
  const at::Tensor causal = at::empty({1, 1, U, U}, at::TensorOptions(at::kMeta).dtype(at::kBool));
  y = t5_stack(decoder_, "block", y, source, causal, *decoder_bias_);
  const memory::UnitGuard guard(memory::unit_id("head"));
  const at::Tensor logits = run(head_, drop(run(decoder_norm_, y), dropout_));
  const at::Tensor targets = new_ids(options_.batch, U);
  outputs_.push_back(logits);
  outputs_.push_back(targets);
  return cross_entropy(modules_.autocast() ? logits.to(at::kFloat) : logits, targets, -100);
}

at::Tensor Blip2Model::loss() {
  outputs_.clear();
  const at::Tensor seen = see();
  outputs_.push_back(seen);
  const at::Tensor picture = ask(seen);
  outputs_.push_back(picture);
  const at::Tensor x = embed(picture);
  return is_t5_ ? t5_loss(x) : opt_loss(x);
}

}  // namespace snug::plan::rivals
