// SPDX-License-Identifier: Apache-2.0
#include "models/opt/model.h"

#include <utility>

#include "base/error.h"
#include "models/opt/units.h"

namespace snug::models::opt {

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
