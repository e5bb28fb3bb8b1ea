// SPDX-License-Identifier: Apache-2.0
#include "models/opt/model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/index_select.h>

#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "core/nn/attention.h"
#include "models/config_fields.h"

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

using nlohmann::json;

Config from_hugging_face(const json& root, const std::string& where) {
  const ConfigFields fields(root, where);
  Config c;
  c.vocab_size = fields.integer_between("vocab_size", 1, int64_t{1} << 24, 50272);
  c.hidden_size = fields.integer_between("hidden_size", 1, int64_t{1} << 20, 768);
  c.word_embed_proj_dim =
      fields.integer_between("word_embed_proj_dim", 1, int64_t{1} << 20, c.hidden_size);
  c.ffn_dim = fields.integer_between("ffn_dim", 1, int64_t{1} << 22, 3072);
  c.num_hidden_layers = fields.integer_between("num_hidden_layers", 1, 4096, 12);
  c.num_attention_heads = fields.integer_between("num_attention_heads", 1, 4096, 12);
  c.max_position_embeddings =
      fields.integer_between("max_position_embeddings", 1, int64_t{1} << 24, 2048);
  c.do_layer_norm_before = fields.boolean("do_layer_norm_before", true);
  c.remove_final_layer_norm = fields.boolean("_remove_final_layer_norm", false);
  c.enable_bias = fields.boolean("enable_bias", true);
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", true);
  c.activation_function = fields.text("activation_function", "relu");
  c.activation = ops::activation_of(c.activation_function, where + ": activation_function");
  c.dropout = fields.probability("dropout", 0.1);
  c.attention_dropout = fields.probability("attention_dropout", 0.0);
  c.init_std = fields.number("init_std", 0.02);
  c.bos_token_ids =
      fields.has("bos_token_id") ? fields.ids("bos_token_id") : std::vector<int64_t>{2};
  c.eos_token_ids =
      fields.has("eos_token_id") ? fields.ids("eos_token_id") : std::vector<int64_t>{2};
  c.pad_token_id = fields.integer("pad_token_id", 1);
  c.labels = read_labels(root, where);
  if (c.hidden_size % c.num_attention_heads != 0)
    throw UserError("{}: {} attention heads cannot share a hidden_size of {} evenly", where,
                    c.num_attention_heads, c.hidden_size);
  if (c.head_dim() > 256)
    throw UserError(
        "{}: hidden_size = {} gives each of {} attention heads {} features; at most 256 are "
        "supported",
        where, c.hidden_size, c.num_attention_heads, c.head_dim());
  if (!fields.boolean("layer_norm_elementwise_affine", true))
    throw UserError(
        "{}: layer_norm_elementwise_affine = false is not supported: layer norms have a weight and "
        "a bias here",
        where);
  if (const double share = fields.number("layerdrop", 0.0); share > 0)
    warn("OPT's layerdrop = {} is not applied: every layer runs in every step", share);
  return c;
}

json to_hugging_face(const Config& c) {
  json out{{"architectures", {"OPTForCausalLM"}},
           {"model_type", "opt"},
           {"vocab_size", c.vocab_size},
           {"hidden_size", c.hidden_size},
           {"word_embed_proj_dim", c.word_embed_proj_dim},
           {"ffn_dim", c.ffn_dim},
           {"num_hidden_layers", c.num_hidden_layers},
           {"num_attention_heads", c.num_attention_heads},
           {"max_position_embeddings", c.max_position_embeddings},
           {"do_layer_norm_before", c.do_layer_norm_before},
           {"_remove_final_layer_norm", c.remove_final_layer_norm},
           {"enable_bias", c.enable_bias},
           {"layer_norm_elementwise_affine", true},
           {"tie_word_embeddings", c.tie_word_embeddings},
           {"activation_function", c.activation_function},
           {"dropout", c.dropout},
           {"attention_dropout", c.attention_dropout},
           {"layerdrop", 0.0},
           {"init_std", c.init_std},
           {"use_cache", true},
           {"bos_token_id", ids_or_number(c.bos_token_ids)},
           {"eos_token_id", ids_or_number(c.eos_token_ids)},
           {"pad_token_id", c.pad_token_id}};
  write_labels(out, c.labels);
  return out;
}

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
  nn::add_noise(words, batch, pass, tokens_);
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
    auto [beside, read] = attention_norm_.forward_beside(hidden);
    const at::Tensor attended = attend(std::exchange(read, {}), batch, pass);
    const auto [sum, x] = final_norm_.forward_sum(beside, attended);
    state.set("hidden", at::add(sum, mlp(x, batch, pass)));
    return state;
  }
  const at::Tensor x = attention_norm_.forward_sum(hidden, attend(hidden, batch, pass)).second;
  state.set("hidden", final_norm_.forward_sum(x, mlp(x, batch, pass)).second);
  return state;
}

Head::Head(const Config& c, const std::string& prefix, nn::Parameter* tied)
    : nn::Head("head", prefix + "lm_head", c.word_embed_proj_dim, c.vocab_size, tied, {},
               std::ssize(c.labels)) {
  if (!vocabulary_.is_tied()) vocabulary_.weight().init_scale = c.init_std;
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

std::unique_ptr<Model> make_model(const nlohmann::json& config, const std::string& where,
                                  const files::TensorSource* files) {
  // Some directories store the decoder without the prefix "model.".
  const bool is_bare = files != nullptr && files->find("decoder.embed_tokens.weight") != nullptr;
  return std::make_unique<OptModel>(from_hugging_face(config, where), is_bare ? "model." : "");
}

OptModel::OptModel(Config config, std::string files_omit, const std::string& prefix)
    : config_(std::move(config)),
      files_omit_(std::move(files_omit)),
      units_(make_units(config_, prefix)) {}

std::vector<nn::Unit*> OptModel::units() {
  std::vector<nn::Unit*> all;
  for (const auto& unit : units_) all.push_back(unit.get());
  return all;
}

Dimensions OptModel::dimensions() const {
  return {.vocabulary = config_.vocab_size,
          .max_positions = config_.max_position_embeddings,
          .num_layers = config_.num_hidden_layers,
          .hidden_size = config_.hidden_size,
          .num_heads = config_.num_attention_heads,
          .num_kv_heads = config_.num_attention_heads,
          .head_dim = config_.head_dim()};
}

// Not project_in and project_out, which are small.
std::vector<nn::SplitRow> OptModel::split() const {
  return {{"embed_tokens", nn::by_rows()}, {"embed_positions", nn::by_rows()},
          {"q_proj", nn::by_rows()},       {"k_proj", nn::by_rows()},
          {"v_proj", nn::by_rows()},       {"out_proj", nn::by_columns()},
          {"fc1", nn::by_rows()},          {"fc2", nn::by_columns()},
          {"lm_head", nn::by_rows()}};
}

Placement OptModel::placement(Layout layout, const nn::Parameter& parameter) const {
  if (layout != Layout::HuggingFace)
    throw UserError("OPT models are read and written as Hugging Face directories only (--to hf)");
  std::string name = parameter.name;
  if (name.starts_with(files_omit_)) name.erase(0, files_omit_.size());
  return {.tensor = std::move(name)};
}

void OptModel::prepare(at::Device /*device*/, int64_t max_seqlen) {
  if (max_seqlen <= config_.max_position_embeddings) return;
  throw UserError(
      "sequences of {} tokens: this OPT model has learned positions for {}; cut them with "
      "--train.max_seq_length {}",
      max_seqlen, config_.max_position_embeddings, config_.max_position_embeddings);
}

// Everywhere the config has dropout, and after attention and MLP.
void OptModel::set_dropout(double probability) {
  config_.dropout = probability;
  if (config_.attention_dropout > 0) config_.attention_dropout = probability;
}

}  // namespace snug::models::opt
