// SPDX-License-Identifier: Apache-2.0
#include "recipe/tables/objectives.h"

#include <algorithm>
#include <array>
#include <utility>

namespace snug::recipe {
namespace {

constexpr double kRateOfComparedWeights = 1e-6, kRateOfComparedAdapters = 1e-5;

ObjectiveTraits of_pairs(std::vector<std::string_view> arguments, ObjectiveOptions defaults) {
  arguments.emplace_back("share_prompt");
  return {.preferences = true,
          .arguments = std::move(arguments),
          .defaults = std::move(defaults),
          .lr_of_all_weights = kRateOfComparedWeights,
          .lr_of_adapters = kRateOfComparedAdapters};
}

// In the order of ObjectiveName.
const std::array<ObjectiveTraits, kWords<ObjectiveName>.size()>& traits_of_all() {
  using enum ObjectiveName;
  static const std::array<ObjectiveTraits, kWords<ObjectiveName>.size()> kTable = {{
      {.defaults = {.name = Sft}},
      of_pairs({"beta", "label_smoothing", "sft_weight", "length_normalized", "reference"},
               {.name = Dpo}),
      of_pairs({"beta", "sft_weight", "reference"}, {.name = Ipo}),
      of_pairs({"beta", "sft_weight", "reference"}, {.name = Hinge}),
      of_pairs({"beta", "sft_weight"}, {.name = Orpo}),
      of_pairs({"beta", "gamma", "label_smoothing", "sft_weight"},
               {.name = Simpo, .beta = 2, .gamma = 1}),
      of_pairs({"beta", "label_smoothing", "sft_weight"}, {.name = Cpo, .sft_weight = 1}),
      {.ratings = true,
       .arguments = {"beta", "desirable_weight", "undesirable_weight", "reference"},
       .defaults = {.name = Kto},
       .lr_of_all_weights = kRateOfComparedWeights,
       .lr_of_adapters = kRateOfComparedAdapters},
      {.scores_documents = true, .defaults = {.name = Classification}},
      {.preferences = true,
       .scores_documents = true,
       .arguments = {"center_rewards_coefficient", "share_prompt"},
       .defaults = {.name = Reward},
       .lr_of_all_weights = 1e-5,
       .lr_of_adapters = 1e-4},
      {.has_teacher = true,
       .arguments = {"teacher", "top_k", "beta", "sft_weight"},
       .defaults = {.name = Distill, .beta = 0}},
  }};
  return kTable;
}

const ObjectiveTraits* find_objective(std::string_view name) {
  const auto found = std::ranges::find(kWords<ObjectiveName>, name);
  return found == kWords<ObjectiveName>.end()
             ? nullptr
             : &traits_of_all()[static_cast<size_t>(found - kWords<ObjectiveName>.begin())];
}

}  // namespace

const ObjectiveTraits& objective_traits(ObjectiveName name) {
  return traits_of_all()[static_cast<size_t>(name)];
}

ObjectiveOptions objective_defaults(std::string_view name) {
  const ObjectiveTraits* known = find_objective(name);
  return known != nullptr ? known->defaults : ObjectiveOptions{};
}

double usual_rate(const ObjectiveOptions& objective, bool all_weights) {
  const ObjectiveTraits* known = find_objective(objective.name);
  const ObjectiveTraits& traits = known != nullptr ? *known : traits_of_all().front();
  return all_weights ? traits.lr_of_all_weights : traits.lr_of_adapters;
}

bool learns_from_pairs(std::string_view name) {
  const ObjectiveTraits* known = find_objective(name);
  return known != nullptr && known->preferences;
}

bool learns_from_ratings(std::string_view name) {
  const ObjectiveTraits* known = find_objective(name);
  return known != nullptr && known->ratings;
}

bool compares_answers(std::string_view name) {
  return learns_from_pairs(name) || learns_from_ratings(name);
}

bool scores_documents(std::string_view name) {
  const ObjectiveTraits* known = find_objective(name);
  return known != nullptr && known->scores_documents;
}

bool learns_labels(std::string_view name) {
  return scores_documents(name) && !learns_from_pairs(name);
}

bool has_teacher(std::string_view name) {
  const ObjectiveTraits* known = find_objective(name);
  return known != nullptr && known->has_teacher;
}

int64_t documents_per_sample(const ObjectiveOptions& objective) {
  return learns_from_pairs(objective.name) ? 2 : 1;
}

bool objective_takes(std::string_view name, std::string_view argument) {
  const ObjectiveTraits* known = find_objective(name);
  return known != nullptr && std::ranges::count(known->arguments, argument) > 0;
}

}  // namespace snug::recipe
