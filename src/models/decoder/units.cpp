// SPDX-License-Identifier: Apache-2.0
#include "models/decoder/units.h"

#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/split.h>
#include <ATen/ops/split_with_sizes.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/memory/guards.h"
#include "core/ops/embedding.h"

namespace snug::models::decoder {
namespace {

nn::Bias bias_if(bool present) { return present ? nn::Bias::Present : nn::Bias::None; }

nn::RmsNorm rms_norm(const Config& c, const std::string& name, int64_t size) {
  return {name, size, c.rms_norm_eps, c.norm_form};
}

std::variant<nn::RmsNorm, nn::LayerNorm> hidden_norm(const Config& c, const std::string& name) {
  if (c.family->layer_norm) return nn::LayerNorm(name, c.hidden_size, c.rms_norm_eps);
  return rms_norm(c, name, c.hidden_size);
}

std::optional<Norm> block_norm(const Config& c, bool present, const std::string& name) {
  if (!present) return std::nullopt;
  return Norm(c, name);
}

// The norm of queries or of keys, with `heads` heads.
std::optional<nn::RmsNorm> qk_norm(const Config& c, const std::string& name, int64_t heads) {
  if (c.family->qk_norm == QkNorm::None) return std::nullopt;
  if (c.family->qk_norm == QkNorm::Head) return rms_norm(c, name, c.head_dim);
  return rms_norm(c, name, heads * c.head_dim);
}

std::vector<nn::Linear> qkv_layers(const Config& c, const std::string& layer) {
  const std::string name = layer + "self_attn.";
  const int64_t q = c.num_attention_heads * c.head_dim, kv = c.num_key_value_heads * c.head_dim;
  const nn::Bias bias = bias_if(c.qkv_bias);
  if (!c.family->fused_qkv)
    return {{name + "q_proj", nn::Role::Query, c.hidden_size, q, bias},
            {name + "k_proj", nn::Role::Key, c.hidden_size, kv, bias},
            {name + "v_proj", nn::Role::Value, c.hidden_size, kv, bias}};
  return {{layer + c.family->names.qkv, nn::Role::Query, c.hidden_size, q + 2 * kv, bias}};
}

std::vector<nn::Linear> gate_up_layers(const Config& c, const std::string& layer) {
  const std::string name = layer + "mlp.";
  const nn::Bias bias = bias_if(c.mlp_bias);
  if (!c.family->gated)
    return {
        {layer + c.family->names.up, nn::Role::MlpInput, c.hidden_size, c.intermediate_size, bias}};
  if (!c.family->fused_gate)
    return {{name + "gate_proj", nn::Role::MlpInput, c.hidden_size, c.intermediate_size, bias},
            {name + "up_proj", nn::Role::MlpInput, c.hidden_size, c.intermediate_size, bias}};
  return {{layer + c.family->names.up, nn::Role::MlpInput, c.hidden_size, 2 * c.intermediate_size,
           bias}};
}

// Each layer's outputs for x; those of a fused layer cut in proportion to `parts`. split()'s
// backward assembles their gradients in one tensor.
std::vector<at::Tensor> project(const at::Tensor& x, const std::vector<nn::Linear>& layers,
                                std::vector<int64_t> parts, const nn::Batch& batch,
                                const nn::Pass& pass) {
  std::vector<const nn::Linear*> all;
  for (const nn::Linear& layer : layers) all.push_back(&layer);
  std::vector<at::Tensor> outputs = nn::project(x, all, nn::num_tokens(batch), pass);
  if (layers.size() > 1 || parts.size() == 1) return outputs;
  const int64_t sum = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  for (int64_t& part : parts) part = outputs[0].size(1) * part / sum;
  return at::split_with_sizes(outputs[0], parts, 1);
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

// The names of the norms before attention and before the MLP.
const char* norm_of_attention(const Config& c) {
  return c.parallel_residual && !c.shared_norm ? c.family->names.attention_norm : "input_layernorm";
}

const char* norm_of_mlp(const Config& c) {
  const bool has_own = c.parallel_residual || c.family->norms == Norms::Both;
  return has_own ? c.family->names.mlp_norm : "post_attention_layernorm";
}

}  // namespace

Norm::Norm(const Config& c, const std::string& name) : norm_(hidden_norm(c, name)) {}

at::Tensor Norm::forward(const at::Tensor& x, ops::NormFeeds feeds) const {
  if (const auto* rms = std::get_if<nn::RmsNorm>(&norm_)) return rms->forward(x, feeds);
  return std::get<nn::LayerNorm>(norm_).forward(x);
}

std::pair<at::Tensor, at::Tensor> Norm::forward_beside(const at::Tensor& x) const {
  return std::visit([&](const auto& norm) { return norm.forward_beside(x); }, norm_);
}

std::pair<at::Tensor, at::Tensor> Norm::forward_sum(const at::Tensor& x,
                                                    const at::Tensor& residual) const {
  return std::visit([&](const auto& norm) { return norm.forward_sum(x, residual); }, norm_);
}

void Norm::list(std::vector<nn::Parameter*>& parameters) {
  if (auto* rms = std::get_if<nn::RmsNorm>(&norm_))
    parameters.push_back(&rms->weight);
  else
    std::get<nn::LayerNorm>(norm_).list(parameters);
}

Embedding::Embedding(const Config& c)
    : Unit("embedding", nn::UnitKind::Embedding),
      config_(c),
      weight_{.name = std::string(c.family->names.embedding) + ".weight",
              .shape = {c.vocab_size, c.hidden_size},
              .role = nn::ParameterRole::Embedding,
              .value = {}} {}

// As transformers rounds it for Gemma; Granite's is a whole number.
double Embedding::scale_in(at::ScalarType type) const {
  if (type == at::kBFloat16) return static_cast<float>(at::BFloat16(config_.embedding_scale));
  if (type == at::kHalf) return static_cast<float>(at::Half(config_.embedding_scale));
  return config_.embedding_scale;
}

nn::State Embedding::forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) {
  at::Tensor hidden = nn::look_up(batch.input_ids, weight_, pass);
  // On what transformers' embedding returns: Gemma's has scaled it, Granite's not yet.
  const bool scales_itself = config_.family->scaled_embedding;
  if (!scales_itself) nn::add_noise(hidden, batch, pass, weight_);
  if (config_.embedding_scale != 1) hidden = at::mul(hidden, scale_in(hidden.scalar_type()));
  if (scales_itself) nn::add_noise(hidden, batch, pass, weight_);
  if (input.has("picture") && batch.picture_rows.defined())
    hidden = nn::replace_rows(hidden, input.at("picture"), batch.picture_rows, weight_);
  nn::State state;
  state.set("hidden",
            nn::dropout(hidden, config_.embedding_dropout, "model.dropout", pass, weight_));
  return state;
}

Block::Block(const Config& c, int64_t layer, const Rope* rope)
    : Unit("block " + std::to_string(layer), nn::UnitKind::Block),
      config_(c),
      layer_(layer),
      rope_(rope),
      name_(c.family->names.layers + std::to_string(layer) + "."),
      before_attention_(
          block_norm(c, c.family->norms != Norms::After, name_ + norm_of_attention(c))),
      after_attention_(block_norm(c, c.family->norms != Norms::Before,
                                  name_ + c.family->names.after_attention_norm)),
      before_mlp_(
          block_norm(c, c.family->norms != Norms::After && !c.shared_norm, name_ + norm_of_mlp(c))),
      after_mlp_(
          block_norm(c, c.family->norms != Norms::Before, name_ + c.family->names.after_mlp_norm)),
      qkv_(qkv_layers(c, name_)),
      o_(name_ + c.family->names.output, nn::Role::Projection, c.num_attention_heads * c.head_dim,
         c.hidden_size, bias_if(c.output_bias)),
      q_norm_(qk_norm(c, name_ + "self_attn.q_norm", c.num_attention_heads)),
      k_norm_(qk_norm(c, name_ + "self_attn.k_norm", c.num_key_value_heads)) {
  if (c.family->sinks)
    sinks_ = {.name = name_ + "self_attn.sinks", .shape = {c.num_attention_heads}, .value = {}};
  if (c.layers[static_cast<size_t>(layer)].experts) {
    experts_.emplace(c, layer, name_);
    return;
  }
  gate_up_ = gate_up_layers(c, name_);
  down_.emplace(name_ + c.family->names.down, nn::Role::MlpOutput, c.intermediate_size,
                c.hidden_size, bias_if(c.mlp_bias));
}

std::vector<nn::Parameter*> Block::parameters() {
  std::vector<nn::Parameter*> all;
  const auto add = [&all](std::optional<Norm>& norm) {
    if (norm) norm->list(all);
  };
  add(before_attention_);
  for (nn::Linear& linear : qkv_) linear.list(all);
  o_.list(all);
  for (auto* norm : {&q_norm_, &k_norm_})
    if (*norm) all.push_back(&(*norm)->weight);
  if (sinks_) all.push_back(&*sinks_);
  for (auto* norm : {&after_attention_, &before_mlp_}) add(*norm);
  if (experts_) experts_->list(all);
  for (nn::Linear& linear : gate_up_) linear.list(all);
  if (down_) down_->list(all);
  add(after_mlp_);
  return all;
}

std::vector<nn::Linear*> Block::linears() {
  std::vector<nn::Linear*> all;
  for (nn::Linear& linear : qkv_) all.push_back(&linear);
  all.push_back(&o_);
  if (experts_) experts_->list(all);
  for (nn::Linear& linear : gate_up_) all.push_back(&linear);
  if (down_) all.push_back(&*down_);
  return all;
}

std::vector<std::vector<nn::Parameter*>> Block::experts() {
  return experts_ ? experts_->parameters_of_each() : std::vector<std::vector<nn::Parameter*>>();
}

at::Tensor Block::attend(const at::Tensor& x, const nn::Batch& batch, const nn::Pass& pass) const {
  const int64_t d = config_.head_dim;
  const Layer& layer = config_.layers[static_cast<size_t>(layer_)];
  const int64_t q = config_.num_attention_heads, kv = config_.num_key_value_heads;
  std::vector<at::Tensor> qkv = config_.family->interleaved
                                    ? by_parts(project(x, qkv_, {1}, batch, pass)[0], q / kv, d)
                                    : project(x, qkv_, {q, kv, kv}, batch, pass);
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
  return nn::dropout(
      o_.forward(nn::causal_attention(qkv[0], qkv[1], qkv[2], layer_, options, placed, pass), pass),
      config_.residual_dropout, name_ + "self_attn.dropout", pass, o_.weight());
}

at::Tensor Block::mlp(const at::Tensor& x, nn::State& state, const nn::Batch& batch,
                      const nn::Pass& pass) const {
  if (experts_) return experts_->forward(x, state, batch, pass);
  if (!config_.family->gated)
    return nn::dropout(down_->forward_activated(
                           nn::project(x, {&gate_up_.front()}, nn::num_tokens(batch), pass)[0],
                           config_.activation, pass),
                       config_.residual_dropout, name_ + "mlp.dropout", pass, down_->weight());
  const int64_t features = gate_up_.front().out_features() / 2;  // where both are one
  const std::vector<at::Tensor> wide = project(x, gate_up_, {features, features}, batch, pass);
  return nn::dropout(down_->forward_gated(wide[0], wide[1], config_.activation, pass),
                     config_.residual_dropout, name_ + "mlp.dropout", pass, down_->weight());
}

nn::State Block::forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) {
  at::Tensor hidden = input.at("hidden");  // (c, D)
  const auto scaled = [&](const at::Tensor& y) {
    return config_.residual_scale == 1 ? y : at::mul(y, config_.residual_scale);
  };
  const auto normed = [](const std::optional<Norm>& norm, const at::Tensor& y) {
    return norm ? norm->forward(y, ops::NormFeeds::Other) : y;
  };
  at::Tensor read = hidden;
  if (before_attention_) std::tie(hidden, read) = before_attention_->forward_beside(hidden);
  at::Tensor x = config_.shared_norm ? read : at::Tensor();
  at::Tensor added = attend(std::exchange(read, {}), batch, pass);
  added = scaled(normed(after_attention_, added));
  at::Tensor sum;
  if (config_.parallel_residual) {
    sum = at::add(hidden, added);
    if (before_mlp_) x = before_mlp_->forward(hidden);
  } else if (before_mlp_) {
    std::tie(sum, x) = before_mlp_->forward_sum(hidden, added);
  } else {
    sum = x = at::add(hidden, added);
  }
  added.reset();
  nn::State state = input;
  const at::Tensor wide = normed(after_mlp_, mlp(x, state, batch, pass));
  state.set("hidden", at::add(sum, wide, config_.residual_scale));
  return state;
}

Head::Head(const Config& c, nn::Parameter* tied)
    : nn::Head("head", c.family->names.head, c.hidden_size, c.vocab_size, tied, c.logit_form,
               std::ssize(c.labels)),
      config_(c),
      norm_(c, c.family->names.norm) {}

std::vector<nn::Parameter*> Head::parameters() {
  std::vector<nn::Parameter*> all;
  norm_.list(all);
  vocabulary_.list(all);
  return all;
}

at::Tensor Head::prepare(const at::Tensor& x, const nn::Pass& /*pass*/) { return norm_.forward(x); }

DecoderModel::DecoderModel(Config config)
    : config_(std::move(config)), embedding_(std::make_unique<Embedding>(config_)) {
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer)
    blocks_.push_back(std::make_unique<Block>(config_, layer, rope_of(layer)));
  head_ = std::make_unique<Head>(config_,
                                 config_.tie_word_embeddings ? &embedding_->weight() : nullptr);
}

const Rope* DecoderModel::rope_of(int64_t layer) const {
  const Rotation rotation = config_.layers[static_cast<size_t>(layer)].rotation;
  if (rotation == Rotation::None) return nullptr;
  return rotation == Rotation::Window ? &window_rope_ : &rope_;
}

std::vector<nn::Unit*> DecoderModel::units() {
  std::vector<nn::Unit*> all{embedding_.get()};
  for (const auto& block : blocks_) all.push_back(block.get());
  all.push_back(head_.get());
  return all;
}

Dimensions DecoderModel::dimensions() const {
  return {.vocabulary = config_.vocab_size,
          .max_positions = config_.max_position_embeddings,
          .num_layers = config_.num_hidden_layers,
          .hidden_size = config_.hidden_size,
          .num_heads = config_.num_attention_heads,
          .num_kv_heads = config_.num_key_value_heads,
          .head_dim = config_.head_dim};
}

std::string DecoderModel::litgpt_config() const {
  return config_.family->in_litgpt ? to_litgpt(config_) : Model::litgpt_config();
}

std::vector<nn::SplitRow> DecoderModel::split() const {
  std::vector<nn::SplitRow> all = {{"embed_tokens", nn::by_rows()},
                                   {"q_proj", nn::by_rows()},
                                   {"k_proj", nn::by_rows()},
                                   {"v_proj", nn::by_rows()},
                                   {"qkv_proj", nn::by_rows(3)},
                                   {"o_proj", nn::by_columns()},
                                   {"gate_proj", nn::by_rows()},
                                   {"up_proj", nn::by_rows()},
                                   {"gate_up_proj", nn::by_rows(2)},
                                   {"down_proj", nn::by_columns()},
                                   {"lm_head", nn::by_rows()},
                                   {"embed_in", nn::by_rows()},
                                   {"word_embeddings", nn::by_rows()},
                                   {"query_key_value", nn::by_rows()},
                                   {"attention.dense", nn::by_columns()},
                                   {"self_attention.dense", nn::by_columns()},
                                   {"c_fc", nn::by_rows()},
                                   {"c_proj", nn::by_columns()},
                                   {"dense_h_to_4h", nn::by_rows()},
                                   {"dense_4h_to_h", nn::by_columns()},
                                   {"embed_out", nn::by_rows()},
                                   {"self_attn.sinks", nn::by_rows()}};
  if (config_.family->qk_norm == QkNorm::Head) return all;
  all.push_back({"q_norm", nn::by_rows()});
  all.push_back({"k_norm", nn::by_rows()});
  return all;
}

// A layer of q, k and v is split by thirds, or into whole groups of heads that share a key.
std::vector<HeadCount> DecoderModel::head_counts() const {
  std::vector<HeadCount> counts = Model::head_counts();
  if (config_.family->fused_qkv && !config_.family->interleaved &&
      config_.num_attention_heads != config_.num_key_value_heads)
    counts.push_back({"layer of queries, keys and values in unequal parts", 1});
  if (config_.num_experts > 0)
    counts.push_back({"mixture of experts in a block, which tensor parallelism does not split", 1});
  return counts;
}

// A token computes with a few of a block's experts.
double DecoderModel::flops_per_token(double seqlen, double pictures) const {
  double flops = Model::flops_per_token(seqlen, pictures);
  for (const auto& block : blocks_)
    if (auto& experts = block->mixture()) flops -= experts->idle_flops_per_token();
  return flops;
}

void DecoderModel::prepare(at::Device device, int64_t max_seqlen) {
  const memory::CategoryGuard category(memory::Category::Data);
  const kernels::RopePairs pairs = config_.family->rope_pairs;
  rope_.prepare(config_.rope, config_.rotary_dim, pairs, max_seqlen, device);
  if (std::ranges::find(config_.layers, Rotation::Window, &Layer::rotation) != config_.layers.end())
    window_rope_.prepare(config_.window_rope, config_.rotary_dim, pairs, max_seqlen, device);
}

// Where the config has dropout.
void DecoderModel::set_dropout(double probability) {
  const std::pair<const char*, double*> all[] = {{"attention_dropout", &config_.attention_dropout},
                                                 {"residual_dropout", &config_.residual_dropout},
                                                 {"embedding_dropout", &config_.embedding_dropout}};
  for (const auto& [key, value] : all)
    if (*value != 0) config_.json[key] = *value = probability;
}

}  // namespace snug::models::decoder
