// SPDX-License-Identifier: Apache-2.0
#include "core/nn/attention.h"

#include <ATen/ops/mul.h>
#include <ATen/ops/split_with_sizes.h>

#include <optional>
#include <utility>

#include "core/ops/embedding.h"
#include "models/decoder/layers.h"
#include "models/decoder/mixer.h"

namespace snug::models::decoder {
namespace {

// The norm of queries or of keys, with `heads` heads.
std::optional<nn::RmsNorm> qk_norm(const Config& c, const std::string& name, int64_t heads) {
  if (c.qk_norm == QkNorm::None) return std::nullopt;
  if (c.qk_norm == QkNorm::Head) return rms_norm(c, name, c.head_dim);
  return rms_norm(c, name, heads * c.head_dim);
}

std::vector<nn::Linear> qkv_layers(const Config& c, const std::string& layer) {
  const std::string name = layer + "self_attn.";
  const int64_t q = c.num_attention_heads * c.head_dim, kv = c.num_key_value_heads * c.head_dim;
  const nn::Bias bias = bias_if(c.qkv_bias);
  if (!c.family->fused_qkv)
    return {{name + "q_proj", nn::Role::Query, c.hidden_size, c.family->gated_attention ? 2 * q : q,
             bias},
            {name + "k_proj", nn::Role::Key, c.hidden_size, kv, bias},
            {name + "v_proj", nn::Role::Value, c.hidden_size, kv, bias}};
  return {{layer + c.family->names.qkv, nn::Role::Query, c.hidden_size, q + 2 * kv, bias}};
}

// (N, K of H / K queries, a key and a value of d each) -> q (N, H d), k and v (N, K d): rotation
// and attention want heads side by side.
std::vector<at::Tensor> by_parts(const at::Tensor& x, int64_t queries_per_key, int64_t head_dim) {
  const int64_t width = (queries_per_key + 2) * head_dim;
  const at::Tensor groups = x.view({x.size(0), x.size(1) / width, width});
  std::vector<at::Tensor> parts =
      at::split_with_sizes(groups, {queries_per_key * head_dim, head_dim, head_dim}, 2);
  for (at::Tensor& part : parts) part = part.flatten(1);
  return parts;
}

// (N, H of a query and its gate, d each) -> both (N, H d).
std::vector<at::Tensor> by_gates(const at::Tensor& x, int64_t head_dim) {
  const at::Tensor heads = x.view({x.size(0), x.size(1) / (2 * head_dim), 2 * head_dim});
  std::vector<at::Tensor> parts = at::split_with_sizes(heads, {head_dim, head_dim}, 2);
  for (at::Tensor& part : parts) part = part.flatten(1);
  return parts;
}

class Attention final : public Mixer {
 public:
  Attention(const Config& c, int64_t layer, const std::string& name, const Rope* rope)
      : config_(c),
        layer_(layer),
        rope_(rope),
        name_(name),
        qkv_(qkv_layers(c, name)),
        o_(name + c.family->names.output, nn::Role::Projection, c.num_attention_heads * c.head_dim,
           c.hidden_size, bias_if(c.output_bias)),
        q_norm_(qk_norm(c, name + c.family->names.q_norm, c.num_attention_heads)),
        k_norm_(qk_norm(c, name + c.family->names.k_norm, c.num_key_value_heads)) {
    if (c.family->sinks)
      sinks_ = {.name = name + "self_attn.sinks", .shape = {c.num_attention_heads}, .value = {}};
  }

  at::Tensor forward(const at::Tensor& x, const nn::Batch& batch,
                     const nn::Pass& pass) const override;

  void list(std::vector<nn::Parameter*>& parameters) override {
    for (nn::Linear& linear : qkv_) linear.list(parameters);
    o_.list(parameters);
    for (auto* norm : {&q_norm_, &k_norm_})
      if (*norm) parameters.push_back(&(*norm)->weight);
    if (sinks_) parameters.push_back(&*sinks_);
  }
  void list(std::vector<nn::Linear*>& linears) override {
    for (nn::Linear& linear : qkv_) linears.push_back(&linear);
    linears.push_back(&o_);
  }

 private:
  const Config& config_;
  int64_t layer_;
  const Rope* rope_;
  std::string name_;
  std::vector<nn::Linear> qkv_;  // one each, or one for all
  nn::Linear o_;
  std::optional<nn::RmsNorm> q_norm_, k_norm_;
  std::optional<nn::Parameter> sinks_;  // (H)
};

at::Tensor Attention::forward(const at::Tensor& x, const nn::Batch& batch,
                              const nn::Pass& pass) const {
  const int64_t d = config_.head_dim;
  const Layer& layer = config_.layers[static_cast<size_t>(layer_)];
  const int64_t q = config_.num_attention_heads, kv = config_.num_key_value_heads;
  std::vector<at::Tensor> qkv = config_.family->interleaved
                                    ? by_parts(project(x, qkv_, {1}, batch, pass)[0], q / kv, d)
                                    : project(x, qkv_, {q, kv, kv}, batch, pass);
  at::Tensor gate;  // of what each head gives
  if (config_.family->gated_attention) {
    std::vector<at::Tensor> parts = by_gates(std::exchange(qkv[0], {}), d);
    qkv[0] = std::move(parts[0]);
    gate = std::move(parts[1]);
  }
  if (q_norm_) qkv[0] = q_norm_->forward_heads(qkv[0]);
  if (k_norm_) qkv[1] = k_norm_->forward_heads(qkv[1]);
  nn::Batch placed = batch;
  if (rope_ != nullptr) placed.positions = rope_->places(batch);
  if (rope_ != nullptr && rope_->tables().query_scale.defined())
    qkv[0] = at::mul(qkv[0], ops::embedding(placed.positions, rope_->tables().query_scale,
                                            qkv[0].scalar_type()));
  for (at::Tensor& heads : qkv) heads = nn::split_heads(heads, d);
  const nn::AttentionOptions options{
      .scale = config_.attention_scale,
      .rope = rope_ == nullptr ? nullptr : &rope_->tables(),
      .sliding_window = layer.sliding_window,
      .score_cap = config_.score_cap,
      .sinks = sinks_ ? nn::trained_input(*sinks_, at::kFloat) : at::Tensor(),
      .bias_table = {},
      .dropout = config_.attention_dropout,
      .site = name_ + "self_attn",
      .queries = &qkv_.front()};
  const at::Tensor mixed =
      nn::causal_attention(qkv[0], qkv[1], qkv[2], layer_, options, placed, pass);
  const at::Tensor out = gate.defined() ? o_.forward_gated(gate, mixed, ops::Activation::Sigmoid,
                                                           pass, ops::Up::Shared)
                                        : o_.forward(mixed, pass);
  return nn::dropout(out, config_.residual_dropout, name_ + "self_attn.dropout", pass, o_.weight());
}

}  // namespace

std::unique_ptr<Mixer> make_attention(const Config& config, int64_t layer, const std::string& name,
                                      const Rope* rope) {
  return std::make_unique<Attention>(config, layer, name, rope);
}

}  // namespace snug::models::decoder
