// SPDX-License-Identifier: Apache-2.0
#include "models/t5/units.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>

#include <cmath>

#include "base/error.h"

namespace snug::models::t5 {
namespace {

std::string block_name(const std::string& prefix, const char* stack, int64_t layer) {
  return prefix + stack + ".block." + std::to_string(layer) + ".layer.";
}

nn::Parameter token_table(const Config& c, const std::string& prefix) {
  return {.name = prefix + "shared.weight",
          .shape = {c.vocab_size, c.d_model},
          .role = nn::ParameterRole::Embedding,
          .init_scale = c.initializer_factor,
          .value = {}};
}

// The table is stored in the stack's first block; all blocks share it.
nn::Parameter bias_table(const Config& c, const std::string& prefix, const char* stack) {
  return {.name = block_name(prefix, stack, 0) + "0.SelfAttention.relative_attention_bias.weight",
          .shape = {c.relative_attention_num_buckets, c.num_heads},
          .role = nn::ParameterRole::Embedding,
          .init_scale = c.initializer_factor / std::sqrt(static_cast<double>(c.d_model)),
          .exact = true,
          .value = {}};
}

// Passes a tensor that later units read through unchanged.
void hand_on(const nn::State& input, const std::string& name, nn::State& state) {
  if (input.has(name)) state.set(name, input.at(name));
}

}  // namespace

// --- encoder ---

EncoderEmbedding::EncoderEmbedding(const Config& config, const std::string& prefix)
    : Unit("encoder embedding", nn::UnitKind::Embedding),
      config_(config),
      tokens_(token_table(config, prefix)),
      bias_(bias_table(config, prefix, "encoder")) {}

nn::State EncoderEmbedding::forward(const nn::State& input, const nn::Batch& batch,
                                    const nn::Pass& pass) {
  if (!batch.source) return input;
  at::Tensor words = nn::look_up(batch.source->input_ids, tokens_, pass);
  if (input.has("picture") && batch.picture_rows.defined())
    words = nn::replace_rows(words, input.at("picture"), batch.picture_rows, tokens_);
  nn::State state;
  state.set("source", nn::dropout(words, config_.dropout_rate, name(), pass, tokens_));
  // A copy: blocks read it when this unit's weights may have been put away.
  state.set("encoder_bias", nn::trained_input(bias_, at::kFloat).clone());
  return state;
}

EncoderBlock::EncoderBlock(const Config& config, const std::string& prefix, int64_t layer,
                           const BiasBuckets& buckets)
    : Unit("encoder block " + std::to_string(layer), nn::UnitKind::Block),
      config_(config),
      buckets_(buckets),
      is_last_(layer + 1 == config.num_layers),
      self_(config, block_name(prefix, "encoder", layer) + "0.", "SelfAttention"),
      mlp_(config, block_name(prefix, "encoder", layer) + "1.") {}

std::vector<nn::Parameter*> EncoderBlock::parameters() {
  std::vector<nn::Parameter*> all;
  self_.list(all);
  mlp_.list(all);
  return all;
}

std::vector<nn::Linear*> EncoderBlock::linears() {
  std::vector<nn::Linear*> all;
  self_.list(all);
  mlp_.list(all);
  return all;
}

nn::State EncoderBlock::forward(const nn::State& input, const nn::Batch& batch,
                                const nn::Pass& pass) {
  if (!batch.source) return input;
  const at::Tensor& hidden = input.at("source");  // (e, D)
  const at::Tensor& bias = input.at("encoder_bias");
  const at::Tensor attended =
      self_.full(self_.norm().forward(hidden), {bias, buckets_.encoder}, batch, pass);
  const auto [sum, x] = mlp_.norm().forward_sum(hidden, attended);
  nn::State state;
  state.set("source", at::add(sum, mlp_.forward(x, nn::num_source_tokens(batch), pass)));
  if (!is_last_) state.set("encoder_bias", bias);
  return state;
}

EncoderNorm::EncoderNorm(const Config& config, const std::string& prefix)
    : Unit("encoder norm", nn::UnitKind::Norm),
      config_(config),
      norm_(rms_norm(config, prefix + "encoder.final_layer_norm")) {}

nn::State EncoderNorm::forward(const nn::State& input, const nn::Batch& batch,
                               const nn::Pass& pass) {
  if (!batch.source) return input;
  const at::Tensor own = nn::dropout(norm_.forward(input.at("source")), config_.dropout_rate,
                                     name(), pass, norm_.weight);
  nn::State state;
  state.set("source", nn::all_rows(own, norm_.weight, nn::num_source_tokens(batch)));
  return state;
}

// --- decoder ---

DecoderEmbedding::DecoderEmbedding(const Config& config, const std::string& prefix,
                                   nn::Parameter& tokens)
    : Unit("decoder embedding", nn::UnitKind::Embedding),
      config_(config),
      tokens_(tokens),
      bias_(bias_table(config, prefix, "decoder")) {}

nn::State DecoderEmbedding::forward(const nn::State& input, const nn::Batch& batch,
                                    const nn::Pass& pass) {
  nn::State state;
  state.set("hidden", nn::dropout(nn::look_up(batch.input_ids, tokens_, pass), config_.dropout_rate,
                                  name(), pass, tokens_));
  // A copy: blocks read it when this unit's weights may have been put away.
  state.set("decoder_bias", nn::trained_input(bias_, at::kFloat).clone());
  hand_on(input, "source", state);
  return state;
}

DecoderBlock::DecoderBlock(const Config& config, const std::string& prefix, int64_t layer,
                           const BiasBuckets& buckets)
    : Unit("decoder block " + std::to_string(layer), nn::UnitKind::Block),
      config_(config),
      buckets_(buckets),
      layer_(layer),
      self_(config, block_name(prefix, "decoder", layer) + "0.", "SelfAttention"),
      cross_(config, block_name(prefix, "decoder", layer) + "1.", "EncDecAttention"),
      mlp_(config, block_name(prefix, "decoder", layer) + "2.") {}

std::vector<nn::Parameter*> DecoderBlock::parameters() {
  std::vector<nn::Parameter*> all;
  self_.list(all);
  cross_.list(all);
  mlp_.list(all);
  return all;
}

std::vector<nn::Linear*> DecoderBlock::linears() {
  std::vector<nn::Linear*> all;
  self_.list(all);
  cross_.list(all);
  mlp_.list(all);
  return all;
}

at::Tensor DecoderBlock::look_at_source(const at::Tensor& x, const nn::State& input,
                                        const nn::Batch& batch, const nn::Pass& pass) const {
  if (batch.source) {
    nn::SourceKeys keys = cross_.keys_of(input.at("source"), batch, pass);
    at::Tensor seen = cross_.cross(x, keys, batch, pass);
    if (batch.cache != nullptr) batch.cache->keep_source(layer_, std::move(keys));
    return seen;
  }
  const nn::SourceKeys* kept = batch.cache == nullptr ? nullptr : batch.cache->source(layer_);
  SNUG_CHECK(kept != nullptr, "{}: neither the batch nor its cache has a source", name());
  return cross_.cross(x, *kept, batch, pass);
}

nn::State DecoderBlock::forward(const nn::State& input, const nn::Batch& batch,
                                const nn::Pass& pass) {
  const at::Tensor& hidden = input.at("hidden");  // (c, D)
  const at::Tensor& bias = input.at("decoder_bias");
  const at::Tensor attended =
      self_.causal(self_.norm().forward(hidden), layer_, {bias, buckets_.decoder}, batch, pass);
  const auto [sum, x] = cross_.norm().forward_sum(hidden, attended);
  const auto [sum_of_all, y] = mlp_.norm().forward_sum(sum, look_at_source(x, input, batch, pass));
  nn::State state;
  state.set("hidden", at::add(sum_of_all, mlp_.forward(y, nn::num_tokens(batch), pass)));
  if (layer_ + 1 == config_.num_decoder_layers) return state;
  state.set("decoder_bias", bias);
  hand_on(input, "source", state);
  return state;
}

Head::Head(const Config& config, const std::string& prefix, nn::Parameter* tied)
    : nn::Head("head", prefix + "lm_head", config.d_model, config.vocab_size, tied),
      config_(config),
      norm_(rms_norm(config, prefix + "decoder.final_layer_norm")) {
  if (tied == nullptr) vocabulary_.weight().init_scale = config.initializer_factor;
}

std::vector<nn::Parameter*> Head::parameters() {
  std::vector<nn::Parameter*> all{&norm_.weight};
  vocabulary_.list(all);
  return all;
}

at::Tensor Head::prepare(const at::Tensor& x, const nn::Pass& pass) {
  const at::Tensor prepared =
      nn::dropout(norm_.forward(x), config_.dropout_rate, name(), pass, norm_.weight);
  if (!config_.scale_decoder_outputs) return prepared;
  return at::mul(prepared, 1.0 / std::sqrt(static_cast<double>(config_.d_model)));
}

std::vector<std::unique_ptr<nn::Unit>> make_units(const Config& config, const std::string& prefix,
                                                  const BiasBuckets& buckets) {
  std::vector<std::unique_ptr<nn::Unit>> units;
  auto embedding = std::make_unique<EncoderEmbedding>(config, prefix);
  nn::Parameter& tokens = embedding->tokens();
  units.push_back(std::move(embedding));
  for (int64_t layer = 0; layer < config.num_layers; ++layer)
    units.push_back(std::make_unique<EncoderBlock>(config, prefix, layer, buckets));
  units.push_back(std::make_unique<EncoderNorm>(config, prefix));
  units.push_back(std::make_unique<DecoderEmbedding>(config, prefix, tokens));
  for (int64_t layer = 0; layer < config.num_decoder_layers; ++layer)
    units.push_back(std::make_unique<DecoderBlock>(config, prefix, layer, buckets));
  units.push_back(
      std::make_unique<Head>(config, prefix, config.tie_word_embeddings ? &tokens : nullptr));
  return units;
}

}  // namespace snug::models::t5
