// SPDX-License-Identifier: Apache-2.0
#include "engine/steps/objective.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "core/nn/objectives/distillation.h"
#include "core/nn/objectives/document_scores.h"
#include "core/nn/objectives/kto.h"
#include "core/nn/objectives/preference.h"
#include "engine/strategy.h"
#include "recipe/tables/objectives.h"

namespace snug::engine {
namespace {

// The recipe's word before the config's.
double balance_of(const models::Model& model, const recipe::Recipe& recipe,
                  const dist::Mesh& mesh) {
  const models::Routing routing = model.routing();
  const double balance = recipe.train.router_aux_loss_coef.value_or(routing.balance);
  if (balance > 0 && routing.num_experts == 0)
    throw UserError(
        "train.router_aux_loss_coef = {}: this model has no experts to balance; leave it out",
        balance);
  if (balance > 0 && !routing.may_balance)
    throw UserError(
        "train.router_aux_loss_coef = {}: models of this family have no loss that balances "
        "experts, "
        "in transformers neither; leave it out",
        balance);
  if (balance > 0 && mesh.size(dist::Axis::Context) > 1)
    throw UserError(
        "mesh cp={}: ranks that share sequences do not add up the loss that balances experts; use "
        "fsdp or dp, or set train.router_aux_loss_coef to 0",
        mesh.size(dist::Axis::Context));
  return balance;
}

// Null where cross-entropy is all that is learnt.
std::shared_ptr<const nn::Objective> comparison_of(const recipe::ObjectiveOptions& options) {
  using recipe::ObjectiveName;
  if (options.name == ObjectiveName::Distill)
    return std::make_shared<nn::Distillation>(nn::Distillation::Options{
        .top_k = options.top_k, .beta = options.beta, .sft_weight = options.sft_weight});
  if (options.name == ObjectiveName::Kto)
    return std::make_shared<nn::Kto>(
        nn::Kto::Options{.beta = options.beta,
                         .desirable_weight = options.desirable_weight,
                         .undesirable_weight = options.undesirable_weight});
  using Kind = nn::Preference::Kind;
  const auto kind = [&]() -> std::optional<Kind> {
    switch (options.name.value()) {
      case ObjectiveName::Sft:
      case ObjectiveName::Kto:
      case ObjectiveName::Classification:
      case ObjectiveName::Reward:
      case ObjectiveName::Distill:
        return std::nullopt;
      case ObjectiveName::Dpo:
        return Kind::Dpo;
      case ObjectiveName::Ipo:
        return Kind::Ipo;
      case ObjectiveName::Hinge:
        return Kind::Hinge;
      case ObjectiveName::Orpo:
        return Kind::Orpo;
      case ObjectiveName::Simpo:
        return Kind::Simpo;
      case ObjectiveName::Cpo:
        return Kind::Cpo;
    }
    return std::nullopt;
  }();
  if (!kind) return nullptr;
  return std::make_shared<nn::Preference>(
      nn::Preference::Options{.kind = *kind,
                              .beta = options.beta,
                              .gamma = options.gamma,
                              .label_smoothing = options.label_smoothing,
                              .sft_weight = options.sft_weight,
                              .length_normalized = options.length_normalized});
}

// Null where tokens are learnt.
std::shared_ptr<const nn::Objective> scores_of(const recipe::ObjectiveOptions& options) {
  if (options.name == recipe::ObjectiveName::Classification)
    return std::make_shared<nn::Classification>();
  if (options.name == recipe::ObjectiveName::Reward)
    return std::make_shared<nn::Reward>(options.center_rewards_coefficient);
  return nullptr;
}

// The last token of a document, and the head's few rows, are on one rank.
void check_ranks(const recipe::Recipe& recipe, const dist::Mesh& mesh) {
  for (const auto& [axis, name] :
       {std::pair(dist::Axis::Tensor, "tp"), std::pair(dist::Axis::Context, "cp")})
    if (mesh.size(axis) > 1)
      throw UserError(
          "mesh {}={}: objective {} scores the last token of a document, whose hidden state ranks "
          "along {} share; use fsdp, dp or pp",
          name, mesh.size(axis), recipe.objective.name, name);
}

}  // namespace

void check_objective(const models::Model& model, const recipe::Recipe& recipe) {
  if (recipe.train.neftune_noise_alpha.value_or(0) > 0 && model.reads().source)
    throw UserError(
        "train.neftune_noise_alpha = {}: NEFTune is for models without an encoder; leave it out",
        *recipe.train.neftune_noise_alpha);
  const bool scores = recipe::scores_documents(recipe.objective.name);
  if (scores != !model.labels().empty())
    throw UserError(
        "objective {}: {}", recipe.objective.name,
        scores ? "it trains a head that scores documents, and this model's has the vocabulary"
               : "this model scores documents and writes no text; use --objective classification "
                 "or reward");
  if (!scores && !recipe::has_teacher(recipe.objective.name) &&
      !recipe::compares_answers(recipe.objective.name))
    return;
  const data::Reading reads = model.reads();
  if (reads.source || reads.image_size > 0)
    throw UserError("objective {}: a model {} learns answers alone; use --objective sft",
                    recipe.objective.name,
                    reads.image_size > 0 ? "that looks at pictures" : "with an encoder");
}

bool shares_prompts(const models::Model& model, const recipe::Recipe& recipe) {
  return recipe::learns_from_pairs(recipe.objective.name) && recipe.objective.share_prompt &&
         recipe.data.packing && model.reads().shares_rows() &&
         named_strategy(recipe).mesh[dist::Axis::Context] == 1;
}

std::shared_ptr<const nn::Objective> training_objective(const models::Model& model,
                                                        const recipe::Recipe& recipe,
                                                        const dist::Mesh& mesh) {
  check_objective(model, recipe);
  if (auto scores = scores_of(recipe.objective)) {
    check_ranks(recipe, mesh);
    return scores;
  }
  if (auto comparison = comparison_of(recipe.objective)) return comparison;
  return std::make_shared<nn::CrossEntropy>(
      nn::CrossEntropy::Options{.label_smoothing = recipe.train.label_smoothing,
                                .z_loss = recipe.train.z_loss,
                                .balance = balance_of(model, recipe, mesh)});
}

std::shared_ptr<const nn::Objective> validation_objective(const recipe::Recipe& recipe) {
  recipe::ObjectiveOptions plain = recipe.objective;
  plain.label_smoothing = 0;
  if (auto scores = scores_of(plain)) return scores;
  if (auto comparison = comparison_of(plain)) return comparison;
  return std::make_shared<nn::CrossEntropy>();
}

bool needs_reference(const nn::Objective& objective) {
  return std::ranges::count(objective.batch().columns, "reference", &nn::Column::name) > 0;
}

}  // namespace snug::engine
