// SPDX-License-Identifier: Apache-2.0
#include "core/nn/attention.h"

#include <ATen/ops/mul.h>
#include <ATen/ops/split_with_sizes.h>

#include <optional>
#include <utility>

#include "core/ops/embedding.h"
#include "core/ops/rope.h"
#include "models/decoder/layers.h"
#include "models/decoder/mixer.h"

namespace snug::models::decoder {
namespace {

// The norm of queries or of keys, with `heads` heads of `head_dim` elements.
std::optional<nn::RmsNorm> qk_norm(const Config& c, const std::string& name, int64_t heads,
                                   int64_t head_dim) {
  if (c.qk_norm == QkNorm::None) return std::nullopt;
  if (c.qk_norm == QkNorm::Head) return rms_norm(c, name, head_dim);
  return rms_norm(c, name, heads * head_dim);
}

// Those of queries, keys and values that the layer makes itself.
std::vector<nn::Linear> qkv_layers(const Config& c, const Layer& of, const std::string& layer) {
  const std::string name = layer + "self_attn.";
  const int64_t q = c.num_attention_heads * of.head_dim, kv = of.num_key_value_heads * of.head_dim;
  const nn::Bias bias = bias_if(c.qkv_bias);
  std::vector<nn::Linear> all;
  if (c.family->fused_qkv) {
    all.emplace_back(layer + c.family->names.qkv, nn::Role::Query, c.hidden_size, q + 2 * kv, bias);
    return all;
  }
  all.emplace_back(name + "q_proj", nn::Role::Query, c.hidden_size,
                   c.family->gated_attention ? 2 * q : q, bias);
  if (of.keys_of) return all;
  all.emplace_back(name + "k_proj", nn::Role::Key, c.hidden_size, kv, bias);
  if (!of.keys_are_values)
    all.emplace_back(name + "v_proj", nn::Role::Value, c.hidden_size, kv, bias);
  return all;
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
        number_(layer),
        layer_(c.layers[static_cast<size_t>(layer)]),
        rope_(rope),
        name_(name),
        qkv_(qkv_layers(c, layer_, name)),
        o_(name + c.family->names.output, nn::Role::Projection,
           c.num_attention_heads * layer_.head_dim, c.hidden_size, bias_if(c.output_bias)),
        q_norm_(qk_norm(c, name + c.family->names.q_norm, c.num_attention_heads, layer_.head_dim)) {
    if (!layer_.keys_of)
      k_norm_ =
          qk_norm(c, name + c.family->names.k_norm, layer_.num_key_value_heads, layer_.head_dim);
    if (c.family->sinks)
      sinks_ = {.name = name + "self_attn.sinks", .shape = {c.num_attention_heads}, .value = {}};
  }

  at::Tensor forward(const at::Tensor& x, nn::State& state, const nn::Batch& batch,
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
  // Layers hand keys and values on as they are rotated.
  bool hands_on() const { return layer_.keys_of || layer_.last_reader; }
  at::Tensor normed_values(const at::Tensor& values) const;
  void share_keys(std::vector<at::Tensor>& qkv, nn::State& state, const at::Tensor& places) const;

  const Config& config_;
  int64_t number_;
  const Layer& layer_;
  const Rope* rope_;
  std::string name_;
  std::vector<nn::Linear> qkv_;  // one each, or one for all
  nn::Linear o_;
  std::optional<nn::RmsNorm> q_norm_, k_norm_;
  std::optional<nn::Parameter> sinks_;  // (H)
};

// (N, K d) -> (N, K d)
at::Tensor Attention::normed_values(const at::Tensor& values) const {
  return ops::rms_norm(values.reshape({-1, layer_.head_dim}), {},
                       {.eps = config_.rms_norm_eps,
                        .form = config_.norm_form,
                        .feeds = ops::NormFeeds::Other})
      .view(values.sizes());
}

// Rotates queries and keys, each (N, heads, d), and leaves keys and values for later layers, or
// takes those that another has left.
void Attention::share_keys(std::vector<at::Tensor>& qkv, nn::State& state,
                           const at::Tensor& places) const {
  const std::string of = std::to_string(layer_.keys_of.value_or(number_));
  const std::string keys = "keys " + of, values = "values " + of;
  if (rope_ != nullptr)
    for (size_t i = 0; i < (layer_.keys_of ? 1 : 2); ++i)
      qkv[i] = ops::rotated(qkv[i], places, rope_->tables());
  if (!layer_.keys_of) {
    state.set(keys, qkv[1]);
    state.set(values, qkv[2]);
    return;
  }
  const bool is_last = config_.layers[static_cast<size_t>(*layer_.keys_of)].last_reader == number_;
  qkv[1] = is_last ? state.take(keys) : state.at(keys);
  qkv[2] = is_last ? state.take(values) : state.at(values);
}

at::Tensor Attention::forward(const at::Tensor& x, nn::State& state, const nn::Batch& batch,
                              const nn::Pass& pass) const {
  const int64_t d = layer_.head_dim;
  const int64_t q = config_.num_attention_heads, kv = layer_.num_key_value_heads;
  const std::vector<int64_t> parts =
      config_.family->fused_qkv ? std::vector<int64_t>{q, kv, kv} : std::vector<int64_t>{1};
  std::vector<at::Tensor> qkv = config_.family->interleaved
                                    ? by_parts(project(x, qkv_, {1}, batch, pass)[0], q / kv, d)
                                    : project(x, qkv_, parts, batch, pass);
  at::Tensor gate;  // of what each head gives
  if (config_.family->gated_attention) {
    std::vector<at::Tensor> halves = by_gates(std::exchange(qkv[0], {}), d);
    qkv[0] = std::move(halves[0]);
    gate = std::move(halves[1]);
  }
  qkv.resize(3);
  if (layer_.keys_are_values) qkv[2] = qkv[1];
  if (config_.family->value_norm && !layer_.keys_of) qkv[2] = normed_values(qkv[2]);
  if (q_norm_) qkv[0] = q_norm_->forward_heads(qkv[0]);
  if (k_norm_) qkv[1] = k_norm_->forward_heads(qkv[1]);
  nn::Batch placed = batch;
  if (rope_ != nullptr) placed.positions = rope_->places(batch);
  if (rope_ != nullptr && rope_->tables().query_scale.defined())
    qkv[0] = at::mul(qkv[0], ops::embedding(placed.positions, rope_->tables().query_scale,
                                            qkv[0].scalar_type()));
  for (at::Tensor& heads : qkv)
    if (heads.defined()) heads = nn::split_heads(heads, d);
  if (hands_on()) share_keys(qkv, state, placed.positions);
  const nn::AttentionOptions options{
      .scale = config_.attention_scale,
      .rope = rope_ == nullptr || hands_on() ? nullptr : &rope_->tables(),
      .sliding_window = layer_.sliding_window,
      .score_cap = config_.score_cap,
      .sinks = sinks_ ? nn::trained_input(*sinks_, at::kFloat) : at::Tensor(),
      .bias_table = {},
      .dropout = config_.attention_dropout,
      .site = name_ + "self_attn",
      .queries = &qkv_.front()};
  const at::Tensor mixed = nn::causal_attention(
      qkv[0], qkv[1], qkv[2], layer_.keys_of.value_or(number_), options, placed, pass);
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
