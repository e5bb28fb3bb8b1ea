// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/gpt_models.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>

#include <nlohmann/json.hpp>

#include "core/memory/guards.h"
#include "plan/rivals/operators.h"

namespace snug::plan::rivals {
namespace {

constexpr int64_t kChunk = 128;

// LitGPT's chunked_cross_entropy: the loss in chunks of 128 rows of logits that exist whole, or in
// the pieces that there are.
at::Tensor chunked_cross_entropy(const std::vector<at::Tensor>& logits, const at::Tensor& targets,
                                 bool in_pieces, at::ScalarType type) {
  constexpr int64_t kIgnored = -100;
  std::vector<at::Tensor> rows, wanted;
  if (!in_pieces) {
    rows = logits[0].reshape({-1, logits[0].size(-1)}).split(kChunk);
    wanted = targets.reshape({-1}).split(kChunk);
  } else {
    for (const at::Tensor& piece : logits) rows.push_back(piece.reshape({-1, piece.size(-1)}));
    for (const at::Tensor& piece : targets.split(logits[0].size(1), 1))
      wanted.push_back(piece.reshape({-1}));
  }
  std::vector<at::Tensor> losses;
  for (size_t i = 0; i < rows.size(); ++i)
    losses.push_back(
        at::cross_entropy_loss(rows[i].scalar_type() == at::kFloat ? rows[i] : rows[i].to(type),
                               wanted[i], {}, at::Reduction::None, kIgnored, 0.0));
  const at::Tensor counted = (targets != kIgnored).sum();
  return at::cat(losses).sum() / at::maximum(counted, at::ones_like(counted));
}

}  // namespace

LitgptModel::LitgptModel(const models::Model& like, const Options& options, LitgptLogits logits,
                         bool fused_attention)
    : Model(options),
      logits_kind_(logits),
      fused_attention_(fused_attention),
      heads_(like.dimensions().num_heads),
      groups_(like.dimensions().num_kv_heads),
      head_size_(like.dimensions().head_dim) {
  const models::Dimensions d = like.dimensions();
  const memory::CategoryGuard category(memory::Category::Parameters);
  head_ = linear(d.hidden_size, d.vocabulary, false, options_.weights.lora.head);
  make_embedding(d.vocabulary, d.hidden_size);
  for (int64_t i = 0; i < d.num_layers; ++i) blocks_.push_back(make_block(like));
  modules_.end_unit();
  norm_ = modules_.rms_norm(d.hidden_size, Modules::RmsForm::CastLast);
  for (at::Tensor* table : {&cos_, &sin_})
    *table = at::empty({1, 1, options.tokens, head_size_}, modules_.parameters());
  modules_.share();
}

// Where weights are quantized, finetune_lora replaces the embedding by one with a norm after it
// that has gradients but is not the optimizer's, so that they stay; a variable keeps the old one.
void LitgptModel::make_embedding(int64_t vocabulary, int64_t width) {
  embedding_ = modules_.weight({vocabulary, width});
  if (!modules_.quantized()) return;
  embedding_ = modules_.forgotten_weight({vocabulary, width});
  embedding_norm_.weight = modules_.forgotten_weight({width});
  embedding_norm_.bias = modules_.forgotten_weight({width});
}

LitgptModel::Linear LitgptModel::linear(int64_t in, int64_t out, bool bias, bool adapts) {
  return modules_.linear(in, out, bias, adapts ? std::vector{out} : std::vector<int64_t>());
}

LitgptModel::Block LitgptModel::make_block(const models::Model& like) {
  const nlohmann::json config = like.hugging_face_config();
  const int64_t width = like.dimensions().hidden_size;
  const auto inner = config.at("intermediate_size").get<int64_t>();
  const bool qkv_bias =
      config.value("attention_bias", config.value("model_type", "") == std::string("qwen2"));
  const bool mlp_bias = config.value("mlp_bias", false);
  const recipe::LoraOptions& lora = options_.weights.lora;
  const int64_t queries = heads_ * head_size_, keys = groups_ * head_size_;
  std::vector<int64_t> parts;
  if (lora.query) parts.push_back(queries);
  if (lora.key) parts.push_back(keys);
  if (lora.value) parts.push_back(keys);
  Block block{.unit = modules_.begin_unit()};
  block.norm_1 = modules_.rms_norm(width, Modules::RmsForm::CastLast);
  block.norm_2 = modules_.rms_norm(width, Modules::RmsForm::CastLast);
  block.qkv = modules_.linear(width, queries + 2 * keys, qkv_bias, parts);
  block.proj = linear(queries, width, false, lora.projection);
  block.fc_1 = linear(width, inner, mlp_bias, lora.mlp);
  block.fc_2 = linear(width, inner, mlp_bias, lora.mlp);
  block.down = linear(inner, width, mlp_bias, lora.mlp);
  return block;
}

at::Tensor LitgptModel::adapted(const Linear& layer, const at::Tensor& x) {
  const at::Tensor pretrained = modules_.product(layer, x);
  return layer.a == nullptr ? pretrained : pretrained + adapter(layer, x);
}

at::Tensor LitgptModel::dropped(const at::Tensor& x) const {
  return modules_.cast(modules_.dropped(x));
}

at::Tensor LitgptModel::adapter(const Linear& layer, const at::Tensor& x) {
  const auto narrow = [&](const at::Tensor& weight) {
    return modules_.cast(weight.transpose(0, 1));
  };
  return at::matmul(at::matmul(dropped(x), narrow(*layer.a)), narrow(*layer.b)) * kScaling;
}

// Queries, keys and values have adapters of their own, which LitGPT computes as one grouped
// convolution where they are of one size.
at::Tensor LitgptModel::qkv_adapters(const Linear& layer, const at::Tensor& x) {
  const at::Tensor low = at::linear(dropped(x), modules_.cast_weight(*layer.a))
                             .transpose(-2, -1);  // (B, parts * r, T)
  const at::Tensor weight = layer.b->unsqueeze(-1);
  at::Tensor high;  // (B, outputs, T)
  if (heads_ == groups_) {
    high = conv1d(low, modules_.cast(weight));
  } else {
    const auto lows = low.chunk(static_cast<int64_t>(layer.parts.size()), 1);
    const auto weights = weight.split_with_sizes(layer.parts);
    std::vector<at::Tensor> parts;
    for (size_t i = 0; i < lows.size(); ++i)
      parts.push_back(conv1d(lows[i], modules_.cast(weights[i])));
    high = at::cat(parts, 1);
  }
  high = high.transpose(-2, -1);
  if (high.size(2) != layer.out) high = spread_columns(high, layer.out);
  return high * kScaling;
}

// x (B, H, T, D)
at::Tensor LitgptModel::rope(const at::Tensor& x) const {
  const at::Tensor cos = cos_.slice(2, 0, x.size(2)), sin = sin_.slice(2, 0, x.size(2));
  const at::Tensor roped = rotated(x, cos, sin).to(x.scalar_type());
  return at::cat({roped, x.slice(-1, x.size(-1))}, -1);  // with the share that is not rotated
}

at::Tensor LitgptModel::attend(const Block& block, const at::Tensor& x) {
  const int64_t B = x.size(0), T = x.size(1), D = head_size_;
  at::Tensor qkv = modules_.product(block.qkv, x);
  if (block.qkv.a != nullptr) qkv = qkv + qkv_adapters(block.qkv, x);
  const auto parts = qkv.split_with_sizes({heads_ * D, groups_ * D, groups_ * D}, -1);
  const at::Tensor q = rope(split_heads(parts[0], heads_));
  at::Tensor k = rope(split_heads(parts[1], groups_));
  at::Tensor v = split_heads(parts[2], groups_);
  if (groups_ != heads_) {
    k = k.repeat_interleave(heads_ / groups_, 1);
    v = v.repeat_interleave(heads_ / groups_, 1);
  }
  const at::Tensor y = fused_attention_ ? fused_attention(q, k, v) : plain_attention(q, k, v);
  return adapted(block.proj, y.transpose(1, 2).reshape({B, T, heads_ * D}));
}

at::Tensor LitgptModel::mlp(const Block& block, const at::Tensor& x) {
  const at::Tensor gate = adapted(block.fc_1, x);
  const at::Tensor up = adapted(block.fc_2, x);
  return adapted(block.down, at::silu(gate) * up);
}

at::Tensor LitgptModel::run_layers(const Block& block, const at::Tensor& input) {
  const at::Tensor x = attend(block, run(block.norm_1, input)) + input;
  return mlp(block, run(block.norm_2, x)) + x;
}

void LitgptModel::make_inputs() {
  ids_ = new_ids(options_.batch, options_.tokens);
  labels_ = new_ids(options_.batch, options_.tokens);
}

std::vector<at::Tensor> LitgptModel::logits() {
  at::Tensor x;
  {
    const int32_t unit = memory::unit_id("embedding");
    const memory::UnitGuard guard(unit);
    x = embedding(ids_, *embedding_);
    if (embedding_norm_.bias != nullptr) x = run(embedding_norm_, x);
    mark_unit(x, unit);
  }
  x = run_blocks("block", blocks_, std::move(x), {}, [this](const Block& block, const auto& given) {
    return run_layers(block, given.front());
  });
  finish_gathers();
  const memory::UnitGuard guard(memory::unit_id("head"));
  x = run(norm_, x);
  if (logits_kind_ != LitgptLogits::Pieces) return {adapted(head_, x)};
  std::vector<at::Tensor> logits;
  for (const at::Tensor& part : x.split(kChunk, 1)) logits.push_back(adapted(head_, part));
  return logits;
}

at::Tensor LitgptModel::loss() {
  std::vector<at::Tensor> whole = logits();
  modules_.drop_weight_casts();
  const memory::UnitGuard unit(memory::unit_id("head"));
  // All pieces exist in both types, beside those of the micro-batch before.
  std::vector<at::Tensor> cast = whole;
  if (logits_kind_ != LitgptLogits::Whole)
    for (at::Tensor& piece : cast) piece = piece.to(at::kFloat);
  whole.clear();
  outputs_ = std::move(cast);
  // The last token's prediction has no target. LitGPT replaces the last chunk in the list.
  std::vector<at::Tensor> predicted = outputs_;
  predicted.back() = predicted.back().slice(1, 0, predicted.back().size(1) - 1);
  return chunked_cross_entropy(predicted, labels_.slice(1, 1, options_.tokens),
                               logits_kind_ == LitgptLogits::Pieces,
                               options_.weights.precision.parameters);
}

MinGptModel::MinGptModel(const nlohmann::json& config, const Options& options)
    : Model(options),
      heads_(config.value("n_head", int64_t{12})),
      embedding_dropout_(config.value("embd_pdrop", 0.1)),
      attention_dropout_(config.value("attn_pdrop", 0.1)),
      residual_dropout_(config.value("resid_pdrop", 0.1)) {
  const auto width = config.value("n_embd", int64_t{768});
  const auto vocabulary = config.value("vocab_size", int64_t{50257});
  const int64_t inner = number(config, "n_inner", 4 * width);
  const int64_t length = number(config, "n_positions", options.tokens);
  const int64_t layers = number(config, "n_layer", 12);
  tokens_ = modules_.weight({vocabulary, width});
  positions_ = modules_.weight({length, width});
  for (int64_t i = 0; i < layers; ++i) {
    Block block{.unit = modules_.begin_unit()};
    block.ln_1 = modules_.layer_norm(width);
    block.attn = modules_.linear(width, 3 * width, true, "c_attn");
    block.attn_proj = modules_.linear(width, width, true, "c_proj");
    block.ln_2 = modules_.layer_norm(width);
    block.fc = modules_.linear(width, inner, true, "c_fc");
    block.proj = modules_.linear(inner, width, true, "c_proj");
    blocks_.push_back(block);
  }
  modules_.end_unit();
  norm_ = modules_.layer_norm(width);
  head_ = modules_.linear(width, vocabulary, false, "lm_head");
  modules_.share();
  const memory::CategoryGuard category(memory::Category::Parameters);
  causal_ = at::empty({layers, length, length}, at::TensorOptions(at::kMeta).dtype(at::kFloat));
}

at::Tensor MinGptModel::attend(const Block& block, const at::Tensor& x) {
  const int64_t width = x.size(2), tokens = x.size(1);
  const auto parts = run(block.attn, x).split(width, 2);
  const at::Tensor q = split_heads(parts[0], heads_), k = split_heads(parts[1], heads_),
                   v = split_heads(parts[2], heads_);
  const double scale = 0.5;  // any: shapes only
  at::Tensor scores = at::matmul(q, k.transpose(-2, -1)) * scale;
  const at::Tensor hidden =
      at::empty({1, 1, tokens, tokens}, at::TensorOptions(at::kMeta).dtype(at::kBool));
  scores = masked_fill(scores, hidden);
  scores = at::softmax(modules_.autocast() ? scores.to(at::kFloat) : scores, -1);
  scores = modules_.cast(drop(scores, attention_dropout_));
  const at::Tensor out = join_heads(at::matmul(scores, v));
  return drop(run(block.attn_proj, out), residual_dropout_);
}

at::Tensor MinGptModel::run_layers(const Block& block, const at::Tensor& input) {
  const at::Tensor x = input + attend(block, run(block.ln_1, input));
  const at::Tensor inner = tanh_gelu(run(block.fc, run(block.ln_2, x)));
  return x + drop(run(block.proj, inner), residual_dropout_);
}

at::Tensor MinGptModel::loss() {
  const at::Tensor ids = new_ids(options_.batch, options_.tokens);
  const at::Tensor targets = new_ids(options_.batch, options_.tokens);
  at::Tensor x;
  {
    const memory::UnitGuard guard(memory::unit_id("embedding"));
    x = embedding(ids, *tokens_) + embedding(new_ids(1, options_.tokens), *positions_);
    x = drop(x, embedding_dropout_);
  }
  x = run_blocks("block", blocks_, std::move(x), {}, [this](const Block& block, const auto& given) {
    return run_layers(block, given.front());
  });
  const memory::UnitGuard guard(memory::unit_id("head"));
  const at::Tensor logits = run(head_, run(norm_, x));
  outputs_ = {logits, ids, targets};
  return cross_entropy(modules_.autocast() ? logits.to(at::kFloat) : logits, targets, -1);
}

}  // namespace snug::plan::rivals
