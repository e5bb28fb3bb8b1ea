// SPDX-License-Identifier: Apache-2.0
#include "models/score_head.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "models/config_fields.h"

namespace snug::models {
namespace {

using nlohmann::json;

constexpr std::string_view kScores = "ForSequenceClassification";
// The most labels that a config may list.
constexpr int64_t kMostLabels = 1 << 20;

std::string class_in(const json& config) {
  const auto found = config.find("architectures");
  if (found == config.end() || !found->is_array() || found->empty() || !found->front().is_string())
    return "";
  return found->front().get<std::string>();
}

// Families for which transformers has no class that scores documents.
constexpr std::array<std::string_view, 2> kWithout = {"granite", "olmoe"};

std::string scoring_class(const json& config) {
  const std::string type = config.value("model_type", ""), own = class_in(config);
  // "LlamaForCausalLM", "GPT2LMHeadModel"
  size_t end = own.rfind("ForCausalLM");
  if (end == std::string::npos) end = own.rfind("LMHeadModel");
  if (end == std::string::npos || std::ranges::count(kWithout, type) > 0)
    throw UserError(
        "transformers has no class for a {} model that scores documents, so that none could be "
        "used anywhere else; take a model of another family, such as llama or qwen3",
        type);
  const std::string family = type == "gemma3_text" ? "Gemma3Text" : own.substr(0, end);
  return family + std::string(kScores);
}

}  // namespace

std::vector<std::string> read_labels(const json& config, const std::string& where) {
  if (!class_in(config).ends_with(kScores)) return {};
  const ConfigFields fields(config, where);
  const bool has_names = has_field(config, "id2label");
  if (has_names && (!config["id2label"].is_object() || config["id2label"].empty()))
    throw UserError("{}: \"id2label\" must be an object with a name for each label", where);
  // transformers leaves two labels out, which is what it assumes.
  const int64_t count = has_names ? std::ssize(config["id2label"])
                                  : fields.integer_between("num_labels", 1, kMostLabels, 2);
  std::vector<std::string> labels;
  for (int64_t i = 0; i < count; ++i) {
    std::string name = fmt::format("LABEL_{}", i);
    if (has_names) {
      const auto found = config["id2label"].find(std::to_string(i));
      if (found == config["id2label"].end() || !found->is_string())
        throw UserError("{}: \"id2label\" has {} entries, but no name of label {}", where, count,
                        i);
      name = found->get<std::string>();
    }
    labels.push_back(std::move(name));
  }
  return labels;
}

void write_labels(json& config, const std::vector<std::string>& labels) {
  if (labels.empty()) return;
  config["architectures"] = json::array({scoring_class(config)});
  json names = json::object(), numbers = json::object();
  for (size_t i = 0; i < labels.size(); ++i) {
    names[std::to_string(i)] = labels[i];
    numbers[labels[i]] = i;
  }
  config["id2label"] = std::move(names);
  config["label2id"] = std::move(numbers);
  // One score is a reward, for which transformers' classes have no loss.
  if (labels.size() > 1) config["problem_type"] = "single_label_classification";
}

data::Reading reading_of(const std::vector<std::string>& labels, const json& pad_token,
                         data::Reading reads) {
  reads.scores_documents = !labels.empty();
  if (pad_token.is_number_integer()) reads.pad_token = pad_token.get<int32_t>();
  return reads;
}

}  // namespace snug::models
