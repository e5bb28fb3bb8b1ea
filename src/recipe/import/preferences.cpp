// Objectives over pairs of answers as TRL's trainers have them, whose losses axolotl and
// LLaMA-Factory take under keys of their own.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "recipe/import/shared.h"
#include "recipe/numbers.h"
#include "recipe/options/row.h"
#include "recipe/tables/objectives.h"

namespace snug::recipe {
namespace {

constexpr std::string_view kDpoLosses = "sigmoid=dpo sigmoid_norm=dpo hinge=hinge ipo=ipo";

constexpr std::string_view kPairColumns =
    "prompt=prompt prompt=instruction prompt=question prompt=query prompt=input chosen=chosen "
    "chosen=chosen_response chosen=chosen_messages chosen=chosen_answer "
    "chosen=chosen_completion rejected=rejected rejected=rejected_response "
    "rejected=rejected_messages rejected=rejected_answer rejected=rejected_completion";

// The items of a list, or the one word in its place.
std::vector<std::string> texts_of(const Draft& draft, std::string_view key) {
  const Found* found = draft.find(key);
  std::vector<std::string> texts;
  if (found != nullptr && found->node.kind == YamlNode::Kind::List)
    for (const YamlNode& item : found->node.items) texts.push_back(item.text);
  else if (const std::string text = draft.text(key); !text.empty())
    texts.push_back(text);
  return texts;
}

}  // namespace

void refuse_objective(Draft& draft, std::string_view theirs, std::string_view name) {
  draft.refuse(theirs, "objective.name",
               fmt::format("snug does not have the objective {} yet; choose one of its own with "
                           "--objective: {}",
                           name, fmt::join(choices_of<ObjectiveName>(), ", ")));
}

void take_objective(Draft& draft, std::string_view objective, std::string_view theirs,
                    const PreferenceKeys& keys) {
  draft.set("objective.name", objective, theirs);
  for (const auto& [argument, key] :
       {std::pair<std::string_view, std::string_view>{"beta", keys.beta},
        {"gamma", keys.gamma},
        {"label_smoothing", keys.label_smoothing},
        {"desirable_weight", keys.desirable_weight},
        {"undesirable_weight", keys.undesirable_weight}}) {
    if (key.empty()) continue;
    if (objective_takes(objective, argument))
      draft.set(fmt::format("objective.{}", argument), draft.text(key), key);
    else if (draft.find(key) != nullptr)
      draft.idle(key, fmt::format("{} has no such argument", objective));
  }
}

std::string take_dpo_losses(Draft& draft, std::string_view losses, std::string_view weights) {
  const std::vector<std::string> names = texts_of(draft, losses),
                                 factors = texts_of(draft, weights);
  std::string objective;
  double weight = 1, sft_weight = 0;
  bool normalized = false;
  for (size_t i = 0; i < names.size(); ++i) {
    const double factor = i < factors.size() ? parse_float(factors[i]).value_or(1) : 1;
    const std::string_view ours = word_for(kDpoLosses, names[i]);
    if (names[i] == "sft") {
      sft_weight += factor;
    } else if (ours.empty() || !objective.empty()) {
      refuse_objective(draft, losses, fmt::format("{}", fmt::join(names, " + ")));
      return "";
    } else {
      objective = ours;
      weight = factor;
      normalized = names[i] == "sigmoid_norm";
    }
  }
  if (objective.empty() || weight <= 0) {
    refuse_objective(draft, losses,
                     fmt::format("{} without a loss of pairs", fmt::join(names, " + ")));
    return "";
  }
  if (weight != 1)
    draft.differs(weights,
                  fmt::format("the loss of pairs has weight 1, and all losses are {} times "
                              "as large",
                              float_text(1 / weight)));
  if (normalized) draft.set("objective.length_normalized", "true", losses);
  if (sft_weight > 0) take_sft_weight(draft, float_text(sft_weight / weight), losses);
  return objective;
}

void take_sft_weight(Draft& draft, std::string_view weight, std::string_view theirs) {
  draft.set("objective.sft_weight", weight, theirs);
  if (parse_float(weight) > 0) draft.differs(theirs, std::string(kOfMicroBatch));
}

void take_no_dropout(Draft& draft, std::string_view theirs) {
  draft.set("model.dropout", "0", theirs);
  if (!draft.trains_all_weights()) draft.set("lora_dropout", "0", theirs);
  if (draft.find("lora_dropout") != nullptr && draft.on("lora_dropout"))
    draft.idle("lora_dropout", "dropout is off in preference training");
}

void take_ld_alpha(Draft& draft, const Found& found) {
  if (parse_float(found.node.text) == 1)
    draft.idle(found.key, std::string(kOff));
  else
    draft.refuse(found.key, "", std::string(kNoSuchTechnique));
}

bool is_pair_column(std::string_view role, std::string_view name) {
  return std::ranges::count(words_of(kPairColumns), fmt::format("{}={}", role, name)) > 0;
}

void idle_all(Draft& draft, std::string_view keys, std::string_view why) {
  for (const std::string_view key : words_of(keys))
    if (draft.find(key) != nullptr) draft.idle(key, std::string(why));
}

}  // namespace snug::recipe
