// The attention and MLP of T5's blocks.
// SPDX-License-Identifier: Apache-2.0
#include "models/t5/layers.h"

#include <cmath>

namespace snug::models::t5 {
namespace {

nn::Linear linear(const std::string& name, nn::Role role, int64_t in, int64_t out,
                  double deviation) {
  nn::Linear layer(name, role, in, out, nn::Bias::None);
  layer.weight().init_scale = deviation;
  return layer;
}

double inverse_root(int64_t x) { return 1.0 / std::sqrt(static_cast<double>(x)); }

}  // namespace

nn::RmsNorm rms_norm(const Config& c, const std::string& name) {
  return {name, c.d_model, c.layer_norm_epsilon};
}

// Attention does not scale q·k; instead q has smaller initial weights.
Attention::Attention(const Config& c, const std::string& name, const std::string& module)
    : norm_(rms_norm(c, name + "layer_norm")),
      config_(c),
      name_(name + module),
      q_(linear(name_ + ".q", nn::Role::Query, c.d_model, c.num_heads * c.d_kv,
                c.initializer_factor * inverse_root(c.d_model * c.d_kv))),
      k_(linear(name_ + ".k", nn::Role::Key, c.d_model, c.num_heads * c.d_kv,
                c.initializer_factor * inverse_root(c.d_model))),
      v_(linear(name_ + ".v", nn::Role::Value, c.d_model, c.num_heads * c.d_kv,
                c.initializer_factor * inverse_root(c.d_model))),
      o_(linear(name_ + ".o", nn::Role::Projection, c.num_heads * c.d_kv, c.d_model,
                c.initializer_factor * inverse_root(c.num_heads * c.d_kv))) {}

void Attention::list(std::vector<nn::Parameter*>& parameters) {
  parameters.push_back(&norm_.weight);
  for (nn::Linear* layer : {&q_, &k_, &v_, &o_}) layer->list(parameters);
}

void Attention::list(std::vector<nn::Linear*>& linears) {
  for (nn::Linear* layer : {&q_, &k_, &v_, &o_}) linears.push_back(layer);
}

nn::AttentionOptions Attention::options(const RelativeBiases& biases) const {
  return {.scale = 1,
          .bias_table = biases.table,
          .bias_buckets = biases.buckets,
          .max_distance = config_.relative_attention_max_distance,
          .dropout = config_.dropout_rate,
          .site = name_,
          .queries = &q_};
}

at::Tensor Attention::heads(const at::Tensor& x) const { return nn::split_heads(x, config_.d_kv); }

at::Tensor Attention::finish(const at::Tensor& mixed, const nn::Pass& pass) const {
  return nn::dropout(o_.forward(mixed, pass), config_.dropout_rate, name_ + ".dropout", pass,
                     o_.weight());
}

at::Tensor Attention::causal(const at::Tensor& x, int64_t layer, const RelativeBiases& biases,
                             const nn::Batch& batch, const nn::Pass& pass) const {
  const std::vector<at::Tensor> qkv = nn::project(x, {&q_, &k_, &v_}, nn::num_tokens(batch), pass);
  return finish(nn::causal_attention(heads(qkv[0]), heads(qkv[1]), heads(qkv[2]), layer,
                                     options(biases), batch, pass),
                pass);
}

at::Tensor Attention::full(const at::Tensor& x, const RelativeBiases& biases,
                           const nn::Batch& batch, const nn::Pass& pass) const {
  const std::vector<at::Tensor> qkv =
      nn::project(x, {&q_, &k_, &v_}, nn::num_source_tokens(batch), pass);
  const nn::Packed documents{.cu_seqlens = batch.source->cu_seqlens,
                             .max_seqlen = batch.source->max_seqlen,
                             .positions = batch.source->positions};
  return finish(nn::full_attention(heads(qkv[0]), heads(qkv[1]), heads(qkv[2]), documents,
                                   options(biases), pass),
                pass);
}

at::Tensor Attention::cross(const at::Tensor& x, const nn::SourceKeys& source,
                            const nn::Batch& batch, const nn::Pass& pass) const {
  const at::Tensor q = heads(nn::project(x, {&q_}, nn::num_tokens(batch), pass)[0]);
  const nn::Packed queries{
      .cu_seqlens = batch.cu_seqlens, .max_seqlen = batch.max_seqlen, .positions = batch.positions};
  const nn::Packed keys{
      .cu_seqlens = source.cu_seqlens, .max_seqlen = source.max_seqlen, .positions = {}};
  return finish(nn::cross_attention(q, source.keys, source.values, queries, keys, options(), pass),
                pass);
}

nn::SourceKeys Attention::keys_of(const at::Tensor& source, const nn::Batch& batch,
                                  const nn::Pass& pass) const {
  return {.keys = heads(k_.forward_features(source, pass)),
          .values = heads(v_.forward_features(source, pass)),
          .cu_seqlens = batch.source->cu_seqlens,
          .max_seqlen = batch.source->max_seqlen};
}

FeedForward::FeedForward(const Config& c, const std::string& name)
    : norm_(rms_norm(c, name + "layer_norm")),
      config_(c),
      name_(name + "DenseReluDense"),
      in_(linear(name_ + (c.is_gated ? ".wi_0" : ".wi"), nn::Role::MlpInput, c.d_model, c.d_ff,
                 c.initializer_factor * inverse_root(c.d_model))),
      out_(linear(name_ + ".wo", nn::Role::MlpOutput, c.d_ff, c.d_model,
                  c.initializer_factor * inverse_root(c.d_ff))) {
  if (c.is_gated)
    up_.emplace(linear(name_ + ".wi_1", nn::Role::MlpInput, c.d_model, c.d_ff,
                       c.initializer_factor * inverse_root(c.d_model)));
}

void FeedForward::list(std::vector<nn::Parameter*>& parameters) {
  parameters.push_back(&norm_.weight);
  std::vector<nn::Linear*> layers;
  list(layers);
  for (nn::Linear* layer : layers) layer->list(parameters);
}

void FeedForward::list(std::vector<nn::Linear*>& linears) {
  linears.push_back(&in_);
  if (up_) linears.push_back(&*up_);
  linears.push_back(&out_);
}

// Dropout of activation(gate) * up equals dropout of up, and dropout of relu(x) that of x; so the
// activation's output is never kept.
at::Tensor FeedForward::forward(const at::Tensor& x, int64_t num_rows, const nn::Pass& pass) const {
  const double rate = config_.dropout_rate;
  const auto drop = [&](const at::Tensor& wide) {
    return nn::dropout_features(wide, rate, name_ + ".inner", pass, in_);
  };
  at::Tensor y;
  if (up_) {
    const std::vector<at::Tensor> wide = nn::project(x, {&in_, &*up_}, num_rows, pass);
    y = out_.forward_gated(wide[0], drop(wide[1]), config_.activation, pass);
  } else {
    const std::vector<at::Tensor> wide = nn::project(x, {&in_}, num_rows, pass);
    y = out_.forward_activated(drop(wide[0]), config_.activation, pass);
  }
  return nn::dropout(y, rate, name_ + ".dropout", pass, out_.weight());
}

}  // namespace snug::models::t5
