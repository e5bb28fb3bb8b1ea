// SPDX-License-Identifier: Apache-2.0
#include "models/opt/units.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/index_select.h>

#include <cmath>

#include "core/nn/attention.h"

namespace snug::models::opt {
namespace {

constexpr double kEps = 1e-5;
// The first two rows of the position table are never used.
constexpr int64_t kPositionOffset = 2;

nn::Linear linear(const Config& c, const std::string& name, nn::Role role, int64_t in, int64_t out,
                  bool has_bias) {
  nn::Linear layer(name, role, in, out, has_bias ? nn::Bias::Present : nn::Bias::None);
  layer.weight().init_scale = c.init_std;
  return layer;
}

std::string layer_name(const std::string& prefix, int64_t layer) {
  return prefix + "model.decoder.layers." + std::to_string(layer) + ".";
}

nn::Parameter table(const std::string& name, int64_t rows, int64_t columns, double deviation) {
  return {.name = name,
          .shape = {rows, columns},
          .role = nn::ParameterRole::Embedding,
          .init_scale = deviation,
          .value = {}};
}

}  // namespace

Embedding::Embedding(const Config& c, const std::string& prefix)
    : Unit("embedding", nn::UnitKind::Embedding),
      tokens_(table(prefix + "model.decoder.embed_tokens.weight", c.vocab_size,
                    c.word_embed_proj_dim, c.init_std)),
      positions_(table(prefix + "model.decoder.embed_positions.weight",
                       c.max_position_embeddings + kPositionOffset, c.hidden_size, c.init_std)) {
  if (c.projects_words())
    project_in_.emplace(linear(c, prefix + "model.decoder.project_in", nn::Role::Other,
                               c.word_embed_proj_dim, c.hidden_size, /*has_bias=*/false));
}

std::vector<nn::Parameter*> Embedding::parameters() {
  std::vector<nn::Parameter*> all{&tokens_, &positions_};
  if (project_in_) project_in_->list(all);
  return all;
}

std::vector<nn::Linear*> Embedding::linears() {
  if (project_in_) return {&*project_in_};
  return {};
}

nn::State Embedding::forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) {
  at::Tensor words = nn::look_up(batch.input_ids, tokens_, pass);
  if (input.has("picture") && batch.picture_rows.defined())
    words = nn::replace_rows(words, input.at("picture"), batch.picture_rows, tokens_);
  if (project_in_) words = project_in_->forward(words, pass);
  const at::Tensor places = nn::look_up(batch.positions + kPositionOffset, positions_, pass);
  nn::State state;
  state.set("hidden", at::add(words, places));
  return state;
}

Block::Block(const Config& c, const std::string& prefix, int64_t layer)
    : Unit("block " + std::to_string(layer), nn::UnitKind::Block),
      config_(c),
      layer_(layer),
      name_(layer_name(prefix, layer)),
      q_(linear(c, name_ + "self_attn.q_proj", nn::Role::Query, c.hidden_size, c.hidden_size,
                c.enable_bias)),
      k_(linear(c, name_ + "self_attn.k_proj", nn::Role::Key, c.hidden_size, c.hidden_size,
                c.enable_bias)),
      v_(linear(c, name_ + "self_attn.v_proj", nn::Role::Value, c.hidden_size, c.hidden_size,
                c.enable_bias)),
      o_(linear(c, name_ + "self_attn.out_proj", nn::Role::Projection, c.hidden_size, c.hidden_size,
                c.enable_bias)),
      attention_norm_(name_ + "self_attn_layer_norm", c.hidden_size, kEps),
      fc1_(linear(c, name_ + "fc1", nn::Role::MlpInput, c.hidden_size, c.ffn_dim, c.enable_bias)),
      fc2_(linear(c, name_ + "fc2", nn::Role::MlpOutput, c.ffn_dim, c.hidden_size, c.enable_bias)),
      final_norm_(name_ + "final_layer_norm", c.hidden_size, kEps) {}

std::vector<nn::Parameter*> Block::parameters() {
  std::vector<nn::Parameter*> all;
  for (nn::Linear* layer : {&q_, &k_, &v_, &o_}) layer->list(all);
  attention_norm_.list(all);
  for (nn::Linear* layer : {&fc1_, &fc2_}) layer->list(all);
  final_norm_.list(all);
  return all;
}

at::Tensor Block::attend(const at::Tensor& x, const nn::Batch& batch, const nn::Pass& pass) const {
  const int64_t d = config_.head_dim();
  const std::vector<at::Tensor> qkv = nn::project(x, {&q_, &k_, &v_}, nn::num_tokens(batch), pass);
  const at::Tensor mixed = nn::causal_attention(
      nn::split_heads(qkv[0], d), nn::split_heads(qkv[1], d), nn::split_heads(qkv[2], d), layer_,
      {.scale = 1.0 / std::sqrt(static_cast<double>(d)),
       .dropout = config_.attention_dropout,
       .site = name_ + "self_attn",
       .queries = &q_},
      batch, pass);
  return nn::dropout(o_.forward(mixed, pass), config_.dropout, name_ + "self_attn.dropout", pass,
                     o_.weight());
}

at::Tensor Block::mlp(const at::Tensor& x, const nn::Batch& batch, const nn::Pass& pass) const {
  const std::vector<at::Tensor> wide = nn::project(x, {&fc1_}, nn::num_tokens(batch), pass);
  return nn::dropout(fc2_.forward_activated(wide[0], config_.activation, pass), config_.dropout,
                     name_ + "fc2.dropout", pass, fc2_.weight());
}

nn::State Block::forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) {
  const at::Tensor& hidden = input.at("hidden");  // (c, D)
  nn::State state;
  if (config_.do_layer_norm_before) {
    const at::Tensor attended = attend(attention_norm_.forward(hidden), batch, pass);
    const auto [sum, x] = final_norm_.forward_sum(hidden, attended);
    state.set("hidden", at::add(sum, mlp(x, batch, pass)));
    return state;
  }
  const at::Tensor x = attention_norm_.forward_sum(hidden, attend(hidden, batch, pass)).second;
  state.set("hidden", final_norm_.forward_sum(x, mlp(x, batch, pass)).second);
  return state;
}

Head::Head(const Config& c, const std::string& prefix, nn::Parameter* tied)
    : nn::Head("head", prefix + "lm_head", c.word_embed_proj_dim, c.vocab_size, tied) {
  if (tied == nullptr) vocabulary_.weight().init_scale = c.init_std;
  if (c.has_final_layer_norm())
    norm_.emplace(prefix + "model.decoder.final_layer_norm", c.hidden_size, kEps);
  if (c.projects_words())
    project_out_.emplace(linear(c, prefix + "model.decoder.project_out", nn::Role::Other,
                                c.hidden_size, c.word_embed_proj_dim, /*has_bias=*/false));
}

std::vector<nn::Parameter*> Head::parameters() {
  std::vector<nn::Parameter*> all;
  if (norm_) norm_->list(all);
  if (project_out_) project_out_->list(all);
  vocabulary_.list(all);
  return all;
}

std::vector<nn::Linear*> Head::linears() {
  if (project_out_) return {&*project_out_, &vocabulary_};
  return {&vocabulary_};
}

at::Tensor Head::prepare(const at::Tensor& x, const nn::Pass& pass) {
  const at::Tensor normed = norm_ ? norm_->forward(x) : x;
  return project_out_ ? project_out_->forward(normed, pass) : normed;
}

std::vector<std::unique_ptr<nn::Unit>> make_units(const Config& config, const std::string& prefix) {
  std::vector<std::unique_ptr<nn::Unit>> units;
  auto embedding = std::make_unique<Embedding>(config, prefix);
  nn::Parameter* tied = config.tie_word_embeddings ? &embedding->tokens() : nullptr;
  units.push_back(std::move(embedding));
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    units.push_back(std::make_unique<Block>(config, prefix, layer));
  units.push_back(std::make_unique<Head>(config, prefix, tied));
  return units;
}

}  // namespace snug::models::opt
