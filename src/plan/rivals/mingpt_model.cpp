// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/mingpt_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include <nlohmann/json.hpp>

#include "core/memory/guards.h"
#include "plan/rivals/operators.h"

namespace snug::plan::rivals {

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
