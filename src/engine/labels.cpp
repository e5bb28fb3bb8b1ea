// SPDX-License-Identifier: Apache-2.0
#include "engine/labels.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "core/nn/head.h"
#include "data/dataset.h"
#include "engine/export/vocabulary.h"
#include "engine/more_tokens.h"
#include "engine/open_data.h"
#include "files/checkpoint/adapters/peft_adapter.h"
#include "files/checkpoint/adapters/peft_config.h"
#include "recipe/tables/objectives.h"

namespace snug::engine {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kLabelsFile = "labels.json";

// transformers' names for labels without any.
std::vector<std::string> unnamed_labels(int64_t count) {
  std::vector<std::string> labels;
  for (int64_t i = 0; i < count; ++i) labels.push_back("LABEL_" + std::to_string(i));
  return labels;
}

// The token that fills batches up in transformers, which a document's score must not be read at.
int64_t pad_token_of(const tokenizer::Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return -1;
  const tokenizer::SpecialTokens& special = tokenizer->special();
  return special.pad >= 0 ? special.pad : special.eos;
}

bool names_rows(const recipe::DataOptions& data) {
  return !is_synthetic(data) &&
         !(data.json_path.empty() && data.path.empty() && data.sources.empty());
}

std::vector<std::string> wanted_labels(const recipe::Recipe& recipe) {
  if (!recipe::learns_labels(recipe.objective.name)) return unnamed_labels(1);
  if (!names_rows(recipe.data)) return unnamed_labels(2);
  const std::vector<data::DatasetOptions> sources = sources_of(recipe);
  for (const data::DatasetOptions& source : sources) fetch_hub_set(source, recipe.access_token);
  return data::find_labels(sources);
}

void check_labels(const std::vector<std::string>& labels, const recipe::Recipe& recipe,
                  const std::string& model) {
  const bool is_reward = !recipe::learns_labels(recipe.objective.name);
  if (is_reward == (labels.size() == 1)) return;
  throw UserError("objective {}: {} scores documents for {} label{}; {}", recipe.objective.name,
                  model, labels.size(), labels.size() == 1 ? "" : "s",
                  is_reward ? "a reward is one score: take a language model, or a reward model"
                            : "its one score is a reward: take a language model, or a classifier");
}

std::vector<std::string> labels_of_adapter(const fs::path& adapter) {
  const fs::path file = adapter / kLabelsFile;
  if (fs::exists(file)) {
    const json names = json::parse(read_file(file, size_t{1} << 26), nullptr, false);
    const bool is_list = names.is_array() && !names.empty() &&
                         std::ranges::all_of(names, [](const json& n) { return n.is_string(); });
    if (!is_list) throw UserError("{}: must be a list of the labels' names", file.string());
    return names.get<std::vector<std::string>>();
  }
  const checkpoint::Adapter read = checkpoint::read_peft_adapter(adapter, {});
  const auto weight = read.base_weights.find(std::string(nn::kScoreLayer) + ".weight");
  if (weight == read.base_weights.end())
    throw UserError(
        "{}: it was trained to score documents (task_type SEQ_CLS), but the file has no {}; save "
        "it "
        "again with modules_to_save: [\"{}\"]",
        adapter.string(), nn::kScoreLayer, nn::kScoreLayer);
  return unnamed_labels(weight->second.size(0));
}

}  // namespace

void prepare_head(models::Checkpoint& checkpoint, const recipe::Recipe& recipe,
                  const tokenizer::Tokenizer* tokenizer) {
  if (!recipe::scores_documents(recipe.objective.name)) return;
  const data::Reading reads = checkpoint.model->reads();
  if (reads.source || reads.image_size > 0)
    throw UserError("objective {}: a model {} learns answers alone; use --objective sft",
                    recipe.objective.name,
                    reads.image_size > 0 ? "that looks at pictures" : "with an encoder");
  const std::vector<std::string> own = checkpoint.model->labels();
  if (!own.empty())
    return check_labels(own, recipe,
                        checkpoint.path.empty() ? "this model" : checkpoint.path.string());
  models::score_documents(checkpoint, wanted_labels(recipe), pad_token_of(tokenizer));
}

models::Checkpoint open_base(const fs::path& adapter, const fs::path& base) {
  models::Checkpoint checkpoint = models::open_checkpoint(base);
  add_tokens_of_adapter(checkpoint, adapter);
  if (!checkpoint::is_peft_directory(adapter)) return checkpoint;
  const auto config = checkpoint::read_peft_config(adapter / "adapter_config.json");
  if (config.task_type != checkpoint::kScoresDocuments) return checkpoint;
  std::vector<std::string> labels = labels_of_adapter(adapter);
  // Names that only the base has are better than none.
  const std::vector<std::string> own = checkpoint.model->labels();
  if (own.size() == labels.size() && !fs::exists(adapter / kLabelsFile)) labels = own;
  const auto tokenizer = open_tokenizer(checkpoint, adapter);
  models::score_documents(checkpoint, labels, pad_token_of(tokenizer.get()));
  return checkpoint;
}

void write_labels_file(const fs::path& folder, const std::vector<std::string>& labels) {
  write_file_atomically(folder / kLabelsFile, json(labels).dump(2) + "\n");
}

}  // namespace snug::engine
