// SPDX-License-Identifier: Apache-2.0
#include "models/t5/model.h"

#include <utility>

#include "base/error.h"
#include "core/ops/attention/score_block.h"

namespace snug::models::t5 {
namespace {

// T5 has no longest length, since distances beyond relative_attention_max_distance share a bucket;
// this bound is never reached.
constexpr int64_t kMaxPositions = int64_t{1} << 20;

}  // namespace

std::unique_ptr<Model> make_model(const nlohmann::json& config, const std::string& where,
                                  const files::TensorSource* files) {
  return std::make_unique<T5Model>(from_hugging_face(config, where, files));
}

T5Model::T5Model(Config config, const std::string& prefix)
    : config_(std::move(config)), units_(make_units(config_, prefix, buckets_)) {}

std::vector<nn::Unit*> T5Model::units() {
  std::vector<nn::Unit*> all;
  for (const auto& unit : units_) all.push_back(unit.get());
  return all;
}

void T5Model::prepare(at::Device device, int64_t /*max_seqlen*/) {
  const auto made = [&](bool causal) {
    return ops::bias_buckets(config_.relative_attention_num_buckets,
                             config_.relative_attention_max_distance, causal, device);
  };
  buckets_ = {.encoder = made(/*causal=*/false), .decoder = made(/*causal=*/true)};
}

Dimensions T5Model::dimensions() const {
  return {.vocabulary = config_.vocab_size,
          .max_positions = kMaxPositions,
          .num_layers = config_.num_decoder_layers,
          .hidden_size = config_.d_model,
          .num_heads = config_.num_heads,
          .num_kv_heads = config_.num_heads,
          .head_dim = config_.d_kv};
}

// Relative biases are split by heads.
std::vector<nn::SplitRow> T5Model::split() const {
  return {{"shared", nn::by_rows()}, {"relative_attention_bias", nn::by_columns()},
          {"q", nn::by_rows()},      {"k", nn::by_rows()},
          {"v", nn::by_rows()},      {"o", nn::by_columns()},
          {"wi", nn::by_rows()},     {"wi_0", nn::by_rows()},
          {"wi_1", nn::by_rows()},   {"wo", nn::by_columns()},
          {"lm_head", nn::by_rows()}};
}

Placement T5Model::placement(Layout layout, const nn::Parameter& parameter) const {
  if (layout != Layout::HuggingFace)
    throw UserError("T5 models are read and written as Hugging Face directories only (--to hf)");
  return {.tensor = parameter.name};
}

data::Reading T5Model::reads() const {
  return {.source = true,
          .decoder_start_token = static_cast<int32_t>(config_.decoder_start_token_id)};
}

// Each token passes one of the two stacks. Attention's two products take 12 operations per query,
// key and feature, forward and backward; causal attention half as many.
double T5Model::flops_per_token(double seqlen, double pictures) const {
  const double length = seqlen / 2;
  const double keys_of_source = 12.0 * static_cast<double>(config_.num_layers) * length;
  const double keys_of_target =
      (6.0 + 12.0) * static_cast<double>(config_.num_decoder_layers) * length;
  const auto features = static_cast<double>(config_.num_heads * config_.d_kv);
  return (Model::flops_per_token(0, pictures) + features * (keys_of_source + keys_of_target)) / 2;
}

}  // namespace snug::models::t5
