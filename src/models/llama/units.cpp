// SPDX-License-Identifier: Apache-2.0
#include "models/llama/units.h"

#include <ATen/ops/add.h>

#include <cmath>

#include "core/memory/guards.h"
#include "core/nn/attention.h"
#include "core/nn/functions.h"

namespace snug::models::llama {
namespace {

nn::Bias bias_if(bool present) { return present ? nn::Bias::Present : nn::Bias::None; }

nn::Parameter norm_weight(const std::string& name, int64_t size) {
  return {.name = name, .shape = {size}, .init = nn::Init::Ones, .value = {}};
}

std::string layer_name(int64_t layer) { return "model.layers." + std::to_string(layer) + "."; }

}  // namespace

Embedding::Embedding(const Config& config)
    : Unit("embedding"),
      weight_{.name = "model.embed_tokens.weight",
              .shape = {config.vocab_size, config.hidden_size},
              .role = nn::ParameterRole::Embedding,
              .cut_dim = 0,
              .value = {}} {}

nn::State Embedding::forward(const nn::State& /*input*/, const nn::Batch& batch,
                             const nn::Pass& pass) {
  nn::State state;
  state.set("hidden", nn::look_up(batch.input_ids, weight_, pass));
  return state;
}

Block::Block(const Config& c, int64_t layer, const Rope& rope)
    : Unit("block " + std::to_string(layer)),
      config_(c),
      layer_(layer),
      rope_(rope),
      input_norm_(norm_weight(layer_name(layer) + "input_layernorm.weight", c.hidden_size)),
      output_norm_(
          norm_weight(layer_name(layer) + "post_attention_layernorm.weight", c.hidden_size)),
      q_(layer_name(layer) + "self_attn.q_proj", nn::Role::Query, c.hidden_size,
         c.num_attention_heads * c.head_dim, bias_if(c.qkv_bias)),
      k_(layer_name(layer) + "self_attn.k_proj", nn::Role::Key, c.hidden_size,
         c.num_key_value_heads * c.head_dim, bias_if(c.qkv_bias)),
      v_(layer_name(layer) + "self_attn.v_proj", nn::Role::Value, c.hidden_size,
         c.num_key_value_heads * c.head_dim, bias_if(c.qkv_bias)),
      o_(layer_name(layer) + "self_attn.o_proj", nn::Role::Projection,
         c.num_attention_heads * c.head_dim, c.hidden_size, bias_if(c.output_bias)),
      gate_(layer_name(layer) + "mlp.gate_proj", nn::Role::MlpInput, c.hidden_size,
            c.intermediate_size, bias_if(c.mlp_bias)),
      up_(layer_name(layer) + "mlp.up_proj", nn::Role::MlpInput, c.hidden_size, c.intermediate_size,
          bias_if(c.mlp_bias)),
      down_(layer_name(layer) + "mlp.down_proj", nn::Role::MlpOutput, c.intermediate_size,
            c.hidden_size, bias_if(c.mlp_bias)) {}

std::vector<nn::Parameter*> Block::parameters() {
  std::vector<nn::Parameter*> all{&input_norm_};
  for (nn::Linear* linear : {&q_, &k_, &v_, &o_}) linear->list(all);
  all.push_back(&output_norm_);
  for (nn::Linear* linear : {&gate_, &up_, &down_}) linear->list(all);
  return all;
}

std::vector<nn::Linear*> Block::linears() { return {&q_, &k_, &v_, &o_, &gate_, &up_, &down_}; }

at::Tensor Block::attend(const at::Tensor& x, const nn::Batch& batch, const nn::Pass& pass) const {
  const int64_t d = config_.head_dim;
  const std::vector<at::Tensor> qkv = nn::project(x, {&q_, &k_, &v_}, nn::num_tokens(batch), pass);
  const at::Tensor q = qkv[0].view({-1, q_.out_features() / d, d});
  const at::Tensor k = qkv[1].view({-1, k_.out_features() / d, d});
  const at::Tensor v = qkv[2].view({-1, v_.out_features() / d, d});
  const nn::AttentionOptions options{.scale = 1.0 / std::sqrt(static_cast<double>(d)),
                                     .rope = &rope_.tables(),
                                     .sliding_window = config_.window_of(layer_),
                                     .bias_table = {},
                                     .site = {}};
  nn::Batch placed = batch;
  placed.positions = rope_.places(batch);
  return o_.forward(nn::causal_attention(q, k, v, layer_, options, placed, pass), pass);
}

nn::State Block::forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) {
  const at::Tensor& hidden = input.at("hidden");  // (N, D)
  const at::Tensor attended =
      attend(nn::rms_norm(hidden, input_norm_, config_.rms_norm_eps), batch, pass);
  const auto [sum, x] = nn::add_rms_norm(hidden, attended, output_norm_, config_.rms_norm_eps);
  const std::vector<at::Tensor> mlp = nn::project(x, {&gate_, &up_}, nn::num_tokens(batch), pass);
  nn::State state;
  state.set("hidden",
            at::add(sum, down_.forward_gated(mlp[0], mlp[1], ops::Activation::Silu, pass)));
  return state;
}

Head::Head(const Config& config, nn::Parameter* tied)
    : Unit("head"),
      config_(config),
      norm_(norm_weight("model.norm.weight", config.hidden_size)),
      linear_(tied != nullptr ? nn::Linear("lm_head", nn::Role::Head, *tied)
                              : nn::Linear("lm_head", nn::Role::Head, config.hidden_size,
                                           config.vocab_size, nn::Bias::None)) {}

std::vector<nn::Parameter*> Head::parameters() {
  std::vector<nn::Parameter*> all{&norm_};
  linear_.list(all);
  return all;
}

std::vector<nn::Parameter*> Head::borrowed() {
  if (linear_.is_tied()) return {&linear_.weight()};
  return {};
}

nn::State Head::forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) {
  const at::Tensor& hidden = input.at("hidden");
  nn::State state;
  if (pass.output == nn::Output::LastLogits) {
    const at::Tensor last =
        nn::last_rows(nn::all_rows(hidden, norm_, nn::num_tokens(batch)), batch);
    state.set("logits", nn::logits(nn::rms_norm(last, norm_, config_.rms_norm_eps), linear_, pass));
    return state;
  }
  state.set("loss", nn::cross_entropy(nn::rms_norm(hidden, norm_, config_.rms_norm_eps), linear_,
                                      batch, pass));
  return state;
}

LlamaModel::LlamaModel(Config config)
    : config_(std::move(config)), embedding_(std::make_unique<Embedding>(config_)) {
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer)
    blocks_.push_back(std::make_unique<Block>(config_, layer, rope_));
  head_ = std::make_unique<Head>(config_,
                                 config_.tie_word_embeddings ? &embedding_->weight() : nullptr);
}

std::vector<nn::Unit*> LlamaModel::units() {
  std::vector<nn::Unit*> all{embedding_.get()};
  for (const auto& block : blocks_) all.push_back(block.get());
  all.push_back(head_.get());
  return all;
}

Dimensions LlamaModel::dimensions() const {
  return {.vocabulary = config_.vocab_size,
          .max_positions = config_.max_position_embeddings,
          .num_layers = config_.num_hidden_layers,
          .hidden_size = config_.hidden_size,
          .num_heads = config_.num_attention_heads,
          .num_kv_heads = config_.num_key_value_heads,
          .num_kv_heads_here =
              blocks_.empty() ? config_.num_key_value_heads : blocks_.front()->num_kv_heads(),
          .head_dim = config_.head_dim};
}

std::map<std::string, std::vector<float>> LlamaModel::gguf_constants() const {
  std::vector<float> factors = gguf_rope_factors(config_);
  if (factors.empty()) return {};
  return {{"rope_freqs.weight", std::move(factors)}};
}

void LlamaModel::prepare(at::Device device, int64_t max_seqlen) {
  const memory::CategoryGuard category(memory::Category::Data);
  rope_.prepare(config_, max_seqlen, device);
}

}  // namespace snug::models::llama
