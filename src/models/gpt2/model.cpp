// SPDX-License-Identifier: Apache-2.0
#include "models/gpt2/model.h"

#include <ATen/ops/add.h>
#include <ATen/ops/split.h>

#include <cmath>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "models/config_fields.h"

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

constexpr std::string_view kPrefix = "transformer.";

// Whether it is a block's linear layer, which transformers stores as a Conv1D, (in, out).
bool is_kept_transposed(const nn::Parameter& parameter) {
  return parameter.shape.size() == 2 && parameter.name.find(".c_") != std::string::npos;
}

}  // namespace

using nlohmann::json;

namespace {

std::vector<int64_t> ids_or(const ConfigFields& fields, const char* key, int64_t fallback) {
  return fields.has(key) ? fields.ids(key) : std::vector<int64_t>{fallback};
}

}  // namespace

Config from_hugging_face(const json& root, const std::string& where) {
  const ConfigFields fields(root, where);
  Config c;
  c.vocab_size = fields.integer_between("vocab_size", 1, int64_t{1} << 24, 50257);
  c.n_positions = fields.integer_between("n_positions", 1, int64_t{1} << 24, 1024);
  c.n_embd = fields.integer_between("n_embd", 1, int64_t{1} << 20, 768);
  c.n_layer = fields.integer_between("n_layer", 1, 4096, 12);
  c.n_head = fields.integer_between("n_head", 1, 4096, 12);
  c.n_inner = fields.integer_between("n_inner", 1, int64_t{1} << 22, 4 * c.n_embd);
  c.activation_function = fields.text("activation_function", "gelu_new");
  c.activation = ops::activation_of(c.activation_function, where + ": activation_function");
  c.embd_pdrop = fields.probability("embd_pdrop", 0.1);
  c.attn_pdrop = fields.probability("attn_pdrop", 0.1);
  c.resid_pdrop = fields.probability("resid_pdrop", 0.1);
  c.layer_norm_epsilon = fields.number("layer_norm_epsilon", 1e-5);
  c.initializer_range = fields.number("initializer_range", 0.02);
  c.scale_attn_weights = fields.boolean("scale_attn_weights", true);
  c.scale_attn_by_inverse_layer_idx = fields.boolean("scale_attn_by_inverse_layer_idx", false);
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", true);
  c.bos_token_ids = ids_or(fields, "bos_token_id", 50256);
  c.eos_token_ids = ids_or(fields, "eos_token_id", 50256);
  c.pad_token_id = fields.integer("pad_token_id", -1);
  c.labels = read_labels(root, where);
  if (c.n_embd % c.n_head != 0)
    throw UserError("{}: n_head = {} attention heads cannot share n_embd = {} evenly", where,
                    c.n_head, c.n_embd);
  if (c.head_dim() > 256)
    throw UserError(
        "{}: n_embd = {} gives each of n_head = {} attention heads {} features; at most 256 are "
        "supported",
        where, c.n_embd, c.n_head, c.head_dim());
  if (fields.boolean("add_cross_attention", false))
    throw UserError("{}: add_cross_attention = true is not supported: GPT-2 is a decoder here",
                    where);
  return c;
}

json to_hugging_face(const Config& c) {
  json out{{"architectures", {"GPT2LMHeadModel"}},
           {"model_type", "gpt2"},
           {"vocab_size", c.vocab_size},
           {"n_positions", c.n_positions},
           {"n_embd", c.n_embd},
           {"n_layer", c.n_layer},
           {"n_head", c.n_head},
           {"n_inner", c.n_inner == 4 * c.n_embd ? json() : json(c.n_inner)},
           {"activation_function", c.activation_function},
           {"embd_pdrop", c.embd_pdrop},
           {"attn_pdrop", c.attn_pdrop},
           {"resid_pdrop", c.resid_pdrop},
           {"layer_norm_epsilon", c.layer_norm_epsilon},
           {"initializer_range", c.initializer_range},
           {"scale_attn_weights", c.scale_attn_weights},
           {"scale_attn_by_inverse_layer_idx", c.scale_attn_by_inverse_layer_idx},
           {"tie_word_embeddings", c.tie_word_embeddings},
           {"use_cache", true},
           {"bos_token_id", ids_or_number(c.bos_token_ids)},
           {"eos_token_id", ids_or_number(c.eos_token_ids)}};
  if (c.pad_token_id >= 0) out["pad_token_id"] = c.pad_token_id;
  write_labels(out, c.labels);
  return out;
}

Embedding::Embedding(const Config& c)
    : Unit("embedding", nn::UnitKind::Embedding),
      config_(c),
      tokens_(table("transformer.wte.weight", c.vocab_size, c.n_embd)),
      positions_(table("transformer.wpe.weight", c.n_positions, c.n_embd)) {}

nn::State Embedding::forward(const nn::State& /*input*/, const nn::Batch& batch,
                             const nn::Pass& pass) {
  const auto look_up_words = [&] {
    at::Tensor words = nn::look_up(batch.input_ids, tokens_, pass);
    nn::add_noise(words, batch, pass, tokens_);
    return words;
  };
  const at::Tensor sum = at::add(look_up_words(), nn::look_up(batch.positions, positions_, pass));
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
  auto [beside, read] = attention_norm_.forward_beside(hidden);
  const at::Tensor attended = attend(std::exchange(read, {}), batch, pass);
  const auto [sum, x] = mlp_norm_.forward_sum(beside, attended);
  nn::State state;
  state.set("hidden", at::add(sum, mlp(x, batch, pass)));
  return state;
}

Head::Head(const Config& c, nn::Parameter* tied)
    : nn::Head("head", "lm_head", c.n_embd, c.vocab_size, tied, {}, std::ssize(c.labels)),
      norm_("transformer.ln_f", c.n_embd, c.layer_norm_epsilon) {}

std::vector<nn::Parameter*> Head::parameters() {
  std::vector<nn::Parameter*> all;
  norm_.list(all);
  vocabulary_.list(all);
  return all;
}

at::Tensor Head::prepare(const at::Tensor& x, const nn::Pass& /*pass*/) { return norm_.forward(x); }

std::unique_ptr<Model> make_model(const nlohmann::json& config, const std::string& where,
                                  const files::TensorSource* files) {
  const bool is_bare = files != nullptr && files->find("wte.weight") != nullptr;
  return std::make_unique<Gpt2Model>(from_hugging_face(config, where), is_bare);
}

Gpt2Model::Gpt2Model(Config config, bool bare_names)
    : config_(std::move(config)),
      bare_names_(bare_names),
      embedding_(std::make_unique<Embedding>(config_)) {
  for (int64_t layer = 0; layer < config_.n_layer; ++layer)
    blocks_.push_back(std::make_unique<Block>(config_, layer));
  head_ = std::make_unique<Head>(config_,
                                 config_.tie_word_embeddings ? &embedding_->tokens() : nullptr);
}

std::vector<nn::Unit*> Gpt2Model::units() {
  std::vector<nn::Unit*> all{embedding_.get()};
  for (const auto& block : blocks_) all.push_back(block.get());
  all.push_back(head_.get());
  return all;
}

Dimensions Gpt2Model::dimensions() const {
  return {.vocabulary = config_.vocab_size,
          .max_positions = config_.n_positions,
          .num_layers = config_.n_layer,
          .hidden_size = config_.n_embd,
          .num_heads = config_.n_head,
          .num_kv_heads = config_.n_head,
          .head_dim = config_.head_dim()};
}

std::vector<nn::SplitRow> Gpt2Model::split() const {
  return {{"wte", nn::by_rows()},       {"wpe", nn::by_rows()},  {"c_attn", nn::by_rows(3)},
          {"c_proj", nn::by_columns()}, {"c_fc", nn::by_rows()}, {"lm_head", nn::by_rows()}};
}

Placement Gpt2Model::placement(Layout layout, const nn::Parameter& parameter) const {
  if (layout == Layout::LitGpt)
    throw UserError("GPT-2 models are not read or written in LitGPT's layout (--to hf, --to gguf)");
  if (layout == Layout::Gguf) return {.tensor = gguf_name(parameter.name), .shape = {}};
  std::string name = parameter.name;
  if (bare_names_ && name.starts_with(kPrefix)) name.erase(0, kPrefix.size());
  return {.tensor = std::move(name), .transposed = is_kept_transposed(parameter), .shape = {}};
}

void Gpt2Model::prepare(at::Device /*device*/, int64_t max_seqlen) {
  if (max_seqlen <= config_.n_positions) return;
  throw UserError(
      "sequences of {} tokens: this GPT-2 model has learned positions for {}; cut them with "
      "--train.max_seq_length {}",
      max_seqlen, config_.n_positions, config_.n_positions);
}

void Gpt2Model::set_dropout(double probability) {
  config_.embd_pdrop = config_.attn_pdrop = config_.resid_pdrop = probability;
}

}  // namespace snug::models::gpt2
