// SPDX-License-Identifier: Apache-2.0
#include "models/decoder/units.h"

#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/memory/guards.h"
#include "core/ops/constant_scale.h"
#include "models/decoder/layers.h"

namespace snug::models::decoder {
namespace {

std::variant<nn::RmsNorm, nn::LayerNorm> hidden_norm(const Config& c, const std::string& name) {
  if (c.family->layer_norm) return nn::LayerNorm(name, c.hidden_size, c.rms_norm_eps);
  return rms_norm(c, name, c.hidden_size);
}

std::optional<Norm> block_norm(const Config& c, bool present, const std::string& name) {
  if (!present) return std::nullopt;
  return Norm(c, name);
}

std::unique_ptr<Mixer> make_mixer(const Config& c, int64_t layer, const std::string& name,
                                  const Rope* rope) {
  switch (c.layers[static_cast<size_t>(layer)].mixer) {
    case MixerKind::ShortConvolution:
      return make_short_convolution(c, layer, name);
    case MixerKind::DeltaRule:
      return make_delta_rule(c, layer, name);
    case MixerKind::Mamba:
      return make_mamba(c, layer, name);
    case MixerKind::Attention:
      break;
  }
  if (c.latent_rank > 0) return make_latent_attention(c, layer, name, rope);
  return make_attention(c, layer, name, rope);
}

std::vector<nn::Linear> gate_up_layers(const Config& c, int64_t intermediate_size,
                                       const std::string& layer) {
  const WeightNames& names = c.family->names;
  const nn::Bias bias = bias_if(c.mlp_bias);
  const auto of = [&](const char* name, int64_t features) {
    return nn::Linear(layer + name, nn::Role::MlpInput, c.hidden_size, features, bias);
  };
  std::vector<nn::Linear> layers;
  if (c.family->gated && c.family->fused_gate) {
    layers.push_back(of(names.gate_up, 2 * intermediate_size));
    return layers;
  }
  if (c.family->gated) layers.push_back(of(names.gate, intermediate_size));
  layers.push_back(of(names.up, intermediate_size));
  return layers;
}

// The names of the norms before attention and before the MLP.
const char* norm_of_attention(const Config& c) {
  return c.parallel_residual && !c.shared_norm ? c.family->names.attention_norm
                                               : c.family->names.first_norm;
}

const char* norm_of_mlp(const Config& c) {
  const bool has_own = c.parallel_residual || c.family->norms == Norms::Both;
  return has_own ? c.family->names.mlp_norm : c.family->names.second_norm;
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
      name_(c.family->names.layers + std::to_string(layer) + "."),
      before_attention_(
          block_norm(c, c.family->norms != Norms::After, name_ + norm_of_attention(c))),
      after_attention_(block_norm(c, c.family->norms != Norms::Before,
                                  name_ + c.family->names.after_attention_norm)),
      before_mlp_(
          block_norm(c, c.family->norms != Norms::After && !c.shared_norm, name_ + norm_of_mlp(c))),
      after_mlp_(
          block_norm(c, c.family->norms != Norms::Before, name_ + c.family->names.after_mlp_norm)),
      mixer_(make_mixer(c, layer, name_, rope)) {
  const Layer& own = c.layers[static_cast<size_t>(layer)];
  if (own.experts) experts_.emplace(c, layer, name_);
  if (own.experts && c.family->normed_experts)
    beside_experts_.emplace(c, name_ + "post_feedforward_layernorm_1");
  if (!own.experts || c.family->mlp_beside_experts) {
    gate_up_ = gate_up_layers(c, own.intermediate_size, name_);
    down_.emplace(name_ + c.family->names.down, nn::Role::MlpOutput, own.intermediate_size,
                  c.hidden_size, bias_if(c.mlp_bias));
  }
  if (c.layer_input_size > 0) layer_input_.emplace(c, layer, name_);
  if (c.family->block_scale) scale_ = constant(name_ + "layer_scalar", 1, nn::Init::Ones);
}

std::vector<nn::Parameter*> Block::parameters() {
  std::vector<nn::Parameter*> all;
  const auto add = [&all](std::optional<Norm>& norm) {
    if (norm) norm->list(all);
  };
  add(before_attention_);
  mixer_->list(all);
  for (auto* norm : {&after_attention_, &before_mlp_}) add(*norm);
  if (experts_) experts_->list(all);
  for (nn::Linear& linear : gate_up_) linear.list(all);
  if (down_) down_->list(all);
  for (auto* norm : {&beside_experts_, &after_mlp_}) add(*norm);
  if (layer_input_) layer_input_->list(all);
  if (scale_) all.push_back(&*scale_);
  return all;
}

std::vector<nn::Linear*> Block::linears() {
  std::vector<nn::Linear*> all;
  mixer_->list(all);
  if (experts_) experts_->list(all);
  for (nn::Linear& linear : gate_up_) all.push_back(&linear);
  if (down_) all.push_back(&*down_);
  if (layer_input_) layer_input_->list(all);
  return all;
}

std::vector<std::vector<nn::Parameter*>> Block::experts() {
  return experts_ ? experts_->parameters_of_each() : std::vector<std::vector<nn::Parameter*>>();
}

at::Tensor Block::mlp(const at::Tensor& x, const at::Tensor& sum, nn::State& state,
                      const nn::Batch& batch, const nn::Pass& pass) const {
  if (!experts_) return own_mlp(x, batch, pass);
  at::Tensor of_experts =
      experts_->forward(config_.family->normed_experts ? sum : x, state, batch, pass);
  if (!down_) return of_experts;
  const at::Tensor own = own_mlp(x, batch, pass);
  return at::add(of_experts,
                 beside_experts_ ? beside_experts_->forward(own, ops::NormFeeds::Other) : own);
}

at::Tensor Block::own_mlp(const at::Tensor& x, const nn::Batch& batch, const nn::Pass& pass) const {
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
  nn::State state = input;
  at::Tensor added = mixer_->forward(std::exchange(read, {}), state, batch, pass);
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
  const at::Tensor wide = normed(after_mlp_, mlp(x, sum, state, batch, pass));
  at::Tensor output = at::add(sum, wide, config_.residual_scale);
  if (layer_input_) output = layer_input_->forward(output, state, batch, pass);
  if (scale_) output = ops::scale_in_place(output, scale_->value);
  state.set("hidden", std::move(output));
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
  if (config_.layer_input_size > 0) layer_inputs_ = std::make_unique<LayerInputs>(config_);
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
  if (layer_inputs_ != nullptr) all.push_back(layer_inputs_.get());
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

// Keys and values of layers that attend to another's: published files have them, and transformers
// leaves them out too.
bool DecoderModel::may_leave_out(const std::string& tensor) const {
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    if (!config_.layers[static_cast<size_t>(layer)].keys_of) continue;
    const std::string block = config_.family->names.layers + std::to_string(layer) + ".self_attn.";
    for (const char* part : {"k_proj.weight", "k_proj.bias", "v_proj.weight", "v_proj.bias",
                             "k_norm.weight", "v_norm.weight"})
      if (tensor == block + part) return true;
  }
  return false;
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
                                   {"shared_mlp.input_linear", nn::by_rows(2)},
                                   {"shared_mlp.output_linear", nn::by_columns()},
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
                                   {"self_attn.sinks", nn::by_rows()},
                                   {"self_attn.out_proj", nn::by_columns()},
                                   {"conv.in_proj", nn::by_rows(3)},
                                   {"conv.conv", nn::by_rows()},
                                   {"conv.out_proj", nn::by_columns()},
                                   {"feed_forward.w1", nn::by_rows()},
                                   {"feed_forward.w2", nn::by_columns()},
                                   {"feed_forward.w3", nn::by_rows()}};
  if (config_.qk_norm == QkNorm::Head) return all;
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
  if (config_.latent_rank > 0)
    counts.push_back({.what = "latent attention", .count = 1, .is_split = false});
  if (config_.delta_key_heads > 0)
    counts.push_back({.what = "gated delta rule", .count = 1, .is_split = false});
  if (!all_attend() && config_.mamba_heads > 0)
    counts.push_back({.what = "Mamba 2", .count = 1, .is_split = false});
  if (config_.layer_input_size > 0)
    counts.push_back({.what = "embeddings by layer", .count = 1, .is_split = false});
  for (const Layer& layer : config_.layers)
    if (layer.num_key_value_heads != config_.num_key_value_heads) {
      counts.push_back({"key-value heads of layers without a window", layer.num_key_value_heads});
      break;
    }
  if (config_.num_experts > 0)
    counts.push_back({.what = "mixture of experts in a block", .count = 1, .is_split = false});
  return counts;
}

// A token computes with a few of a block's experts; a block without attention has no scores, and
// one with the delta rule multiplies its state by a key and a query and adds to it, and one with
// Mamba 2 does not multiply it by a key.
double DecoderModel::flops_per_token(double seqlen, double pictures) const {
  const auto of_scores = [&](int64_t head_dim) {
    return 6.0 * static_cast<double>(config_.num_attention_heads * head_dim) * seqlen;
  };
  double flops = Model::flops_per_token(seqlen, pictures);
  for (const Layer& layer : config_.layers)
    flops += (layer.mixer == MixerKind::Attention ? of_scores(layer.head_dim) : 0) -
             of_scores(config_.head_dim);
  for (const Layer& layer : config_.layers)
    if (layer.mixer == MixerKind::DeltaRule)
      flops += 18.0 * static_cast<double>(config_.delta_value_heads * config_.delta_key_dim *
                                          config_.delta_value_dim);
    else if (layer.mixer == MixerKind::Mamba)
      flops += 12.0 * static_cast<double>(config_.mamba_heads * config_.mamba_state *
                                          config_.mamba_head_dim);
  for (const auto& block : blocks_)
    if (auto& experts = block->mixture()) flops -= experts->idle_flops_per_token();
  return flops;
}

bool DecoderModel::all_attend() const {
  return std::ranges::all_of(
      config_.layers, [](const Layer& layer) { return layer.mixer == MixerKind::Attention; });
}

void DecoderModel::prepare(at::Device device, int64_t max_seqlen) {
  const memory::CategoryGuard category(memory::Category::Data);
  rope_.prepare(config_.rope, config_.rotated, max_seqlen, device);
  if (std::ranges::find(config_.layers, Rotation::Window, &Layer::rotation) != config_.layers.end())
    window_rope_.prepare(config_.window_rope, config_.window_rotated, max_seqlen, device);
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
