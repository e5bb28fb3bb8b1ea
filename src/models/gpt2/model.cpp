// SPDX-License-Identifier: Apache-2.0
#include "models/gpt2/model.h"

#include <string_view>
#include <utility>

#include "base/error.h"

namespace snug::models::gpt2 {
namespace {

constexpr std::string_view kPrefix = "transformer.";

// Whether it is a block's linear layer, which transformers stores as a Conv1D, (in, out).
bool is_kept_transposed(const nn::Parameter& parameter) {
  return parameter.shape.size() == 2 && parameter.name.find(".c_") != std::string::npos;
}

}  // namespace

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
  if (layout != Layout::HuggingFace)
    throw UserError("GPT-2 models are read and written as Hugging Face directories only (--to hf)");
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
