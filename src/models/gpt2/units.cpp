// SPDX-License-Identifier: Apache-2.0
#include "models/gpt2/units.h"

#include <ATen/ops/add.h>
#include <ATen/ops/split.h>

#include <cmath>

namespace snug::models::gpt2 {
namespace {

std::string layer_name(int64_t layer) { return "transformer.h." + std::to_string(layer) + "."; }

nn::Linear linear(const std::string& name, nn::Role role, int64_t in, int64_t out) {
  return {name, role, in, out, nn::Bias::Present};
}

nn::Parameter table(const std::string& name, int64_t rows, int64_t columns) {
  return {
      .name = name, .shape = {rows, columns}, .role = nn::ParameterRole::Embedding, .value = {}};
}

// A layer whose output is added to the hidden states, two per block. Its smaller initial weights
// keep the variance of the residual stream constant with depth (section 2.3 of the paper).
nn::Linear summand(const Config& c, const std::string& name, nn::Role role, int64_t in) {
  nn::Linear layer = linear(name, role, in, c.n_embd);
  layer.weight().init_scale = c.initializer_range / std::sqrt(2.0 * static_cast<double>(c.n_layer));
  return layer;
}

}  // namespace

Embedding::Embedding(const Config& c)
    : Unit("embedding", nn::UnitKind::Embedding),
      config_(c),
      tokens_(table("transformer.wte.weight", c.vocab_size, c.n_embd)),
      positions_(table("transformer.wpe.weight", c.n_positions, c.n_embd)) {}

nn::State Embedding::forward(const nn::State& /*input*/, const nn::Batch& batch,
                             const nn::Pass& pass) {
  const at::Tensor sum = at::add(nn::look_up(batch.input_ids, tokens_, pass),
                                 nn::look_up(batch.positions, positions_, pass));
  nn::State state;
  state.set("hidden", nn::dropout(sum, config_.embd_pdrop, "transformer.drop", pass, tokens_));
  return state;
}

Block::Block(const Config& c, int64_t layer)
    : Unit("block " + std::to_string(layer), nn::UnitKind::Block),
      config_(c),
      layer_(layer),
      attention_norm_(layer_name(layer) + "ln_1", c.n_embd, c.layer_norm_epsilon),
      qkv_(linear(layer_name(layer) + "attn.c_attn", nn::Role::Query, c.n_embd, 3 * c.n_embd)),
      o_(summand(c, layer_name(layer) + "attn.c_proj", nn::Role::Projection, c.n_embd)),
      mlp_norm_(layer_name(layer) + "ln_2", c.n_embd, c.layer_norm_epsilon),
      up_(linear(layer_name(layer) + "mlp.c_fc", nn::Role::MlpInput, c.n_embd, c.n_inner)),
      down_(summand(c, layer_name(layer) + "mlp.c_proj", nn::Role::MlpOutput, c.n_inner)) {}

std::vector<nn::Parameter*> Block::parameters() {
  std::vector<nn::Parameter*> all;
  attention_norm_.list(all);
  qkv_.list(all);
  o_.list(all);
  mlp_norm_.list(all);
  up_.list(all);
  down_.list(all);
  return all;
}

nn::AttentionOptions Block::attention_options(const std::string& site) const {
  const int64_t d = config_.head_dim();
  double scale = config_.scale_attn_weights ? 1.0 / std::sqrt(static_cast<double>(d)) : 1.0;
  if (config_.scale_attn_by_inverse_layer_idx) scale /= static_cast<double>(layer_ + 1);
  return {.scale = scale,
          .bias_table = {},
          .dropout = config_.attn_pdrop,
          .site = site,
          .queries = &qkv_};
}

at::Tensor Block::attend(const at::Tensor& x, const nn::Batch& batch, const nn::Pass& pass) const {
  const int64_t d = config_.head_dim();
  const std::string name = layer_name(layer_) + "attn";
  // Views of the fused product; split()'s backward assembles their gradients in one tensor.
  const at::Tensor all = nn::project(x, {&qkv_}, nn::num_tokens(batch), pass)[0];
  const std::vector<at::Tensor> qkv = at::split(all, all.size(1) / 3, 1);
  const at::Tensor mixed = nn::causal_attention(
      nn::split_heads(qkv[0], d), nn::split_heads(qkv[1], d), nn::split_heads(qkv[2], d), layer_,
      attention_options(name), batch, pass);
  return nn::dropout(o_.forward(mixed, pass), config_.resid_pdrop, name + ".resid_dropout", pass,
                     o_.weight());
}

at::Tensor Block::mlp(const at::Tensor& x, const nn::Batch& batch, const nn::Pass& pass) const {
  const std::vector<at::Tensor> wide = nn::project(x, {&up_}, nn::num_tokens(batch), pass);
  return nn::dropout(down_.forward_activated(wide[0], config_.activation, pass),
                     config_.resid_pdrop, layer_name(layer_) + "mlp.dropout", pass, down_.weight());
}

nn::State Block::forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) {
  const at::Tensor& hidden = input.at("hidden");  // (c, D)
  const at::Tensor attended = attend(attention_norm_.forward(hidden), batch, pass);
  const auto [sum, x] = mlp_norm_.forward_sum(hidden, attended);
  nn::State state;
  state.set("hidden", at::add(sum, mlp(x, batch, pass)));
  return state;
}

Head::Head(const Config& c, nn::Parameter* tied)
    : nn::Head("head", "lm_head", c.n_embd, c.vocab_size, tied),
      norm_("transformer.ln_f", c.n_embd, c.layer_norm_epsilon) {}

std::vector<nn::Parameter*> Head::parameters() {
  std::vector<nn::Parameter*> all;
  norm_.list(all);
  vocabulary_.list(all);
  return all;
}

at::Tensor Head::prepare(const at::Tensor& x, const nn::Pass& /*pass*/) { return norm_.forward(x); }

}  // namespace snug::models::gpt2
