// SPDX-License-Identifier: Apache-2.0
#include "use/evaluate_pairs.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "data/dataset.h"
#include "engine/adapters/adapters.h"
#include "engine/asked/asked_model.h"
#include "engine/steps/objective.h"
#include "engine/steps/validation.h"
#include "recipe/tables/objectives.h"
#include "use/evaluate_scores.h"
#include "use/evaluated_rows.h"

namespace snug::use {
namespace {

using nlohmann::json;

void check_comparable(const recipe::EvaluateOptions& options, const engine::LanguageModel& lm,
                      const nn::Objective& objective) {
  if (!recipe::learns_from_pairs(options.objective.name))
    throw UserError(
        "objective {}: pairs are evaluated by dpo, ipo, hinge, orpo, simpo or cpo; answers by sft",
        options.objective.name);
  if (!options.objective.reference.empty() && !engine::needs_reference(objective))
    throw UserError("objective.reference: {} compares the answers alone; leave it out",
                    options.objective.name);
  if (lm.adapters.size() != 1 && engine::needs_reference(objective) &&
      options.objective.reference.empty())
    throw UserError(
        "objective {} compares with the model before training, and {} does not say which that is; "
        "name it with --objective.reference, or evaluate an adapter, whose base it is, or take "
        "--objective orpo, simpo or cpo, which compare the answers alone",
        options.objective.name, options.checkpoint_dir);
}

}  // namespace

json evaluate_pairs(const recipe::EvaluateOptions& options, const engine::LanguageModel& lm) {
  check_scores_file(options);
  recipe::Recipe recipe;
  recipe.objective = options.objective;
  const auto objective = engine::validation_objective(recipe);
  check_comparable(options, lm, *objective);
  data::DatasetOptions read = evaluated_options(options, lm);
  read.preferences = true;
  EvaluatedRows rows(options, read, lm);
  engine::ValidationOptions pass{.micro_batch_size = options.micro_batch_size,
                                 .compute = lm.precision.compute};
  const auto log_probs_of = [&](const engine::LanguageModel& model, int64_t count) {
    return engine::log_probs_of_documents(*model.executor, *rows.batches(), count, pass);
  };
  const auto log_probs = [&](int64_t count) { return log_probs_of(lm, count); };
  std::vector<double> reference;
  if (engine::needs_reference(*objective)) {
    const int64_t all = rows.samples().num_different();
    if (!options.objective.reference.empty()) {
      reference = log_probs_of(
          engine::open_asked_model({.option = "objective.reference",
                                    .path = options.objective.reference,
                                    .precision = options.precision,
                                    .data = &options.data},
                                   lm.executor->device(), *lm.tokenizer, rows.dataset()),
          all);
    } else {
      engine::remove_adapters(*lm.model);
      reference = log_probs(all);
      lm.use(lm.adapters.front());
    }
    rows.samples().set_columns({{.values = {reference.begin(), reference.end()}}});
  }
  pass.max_batches = options.max_iters.value_or(0);
  pass.objective = objective.get();
  const engine::ValidationResult found =
      engine::validate(*lm.executor, *rows.batches(), rows.samples().count(), pass);
  check_finite(found.loss, "the loss", options);
  json result{{"loss", found.loss},
              {"samples", found.terms},
              {"objective", std::string(options.objective.name)},
              {"prompt_style", rows.dataset().prompt_style}};
  const std::vector<std::string> names = objective->figures();
  for (size_t i = 0; i < names.size(); ++i) result[names[i]] = found.figures[i];
  result["accuracy"] = result["rewards_accuracy"];
  result.erase("rewards_accuracy");
  if (options.scores_file.empty()) return result;
  const int64_t count = rows.num_taken(rows.samples().num_different());
  const std::vector<double> own = log_probs(count);
  std::vector<json> lines;
  for (int64_t i = 0; i < count; ++i) {
    const auto chosen = static_cast<size_t>(2 * i);
    json row{{"row", rows.row_of(i)}, {"chosen", own[chosen]}, {"rejected", own[chosen + 1]}};
    if (!reference.empty())
      row.update(
          {{"reference_chosen", reference[chosen]}, {"reference_rejected", reference[chosen + 1]}});
    lines.push_back(std::move(row));
  }
  write_scores_file(options, std::move(lines));
  return result;
}

}  // namespace snug::use
