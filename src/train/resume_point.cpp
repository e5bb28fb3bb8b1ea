// SPDX-License-Identifier: Apache-2.0
#include "train/resume_point.h"

#include "base/error.h"
#include "train/base_model.h"

namespace snug::train {
namespace {

std::optional<std::filesystem::path> checkpoint_of(const recipe::Recipe& recipe,
                                                   dist::Group& ranks) {
  if (recipe.resume == "false") return std::nullopt;
  if (recipe.resume == "true" || recipe.resume == "auto") {
    const auto latest = checkpoint::find_latest(recipe.out_dir, ranks);
    if (!latest && recipe.resume == "true")
      throw UserError(
          "--resume true: there is no checkpoint in {}; use --resume auto to start without one",
          recipe.out_dir);
    return latest;
  }
  const std::filesystem::path folder = recipe.resume;
  if (!std::filesystem::exists(folder / checkpoint::kStateName))
    throw UserError(
        "resume = {}: must be true, false, auto or the folder of a checkpoint, such as "
        "{}/step-000100",
        recipe.resume, recipe.out_dir);
  return folder;
}

}  // namespace

std::optional<ResumePoint> find_resume_point(const recipe::Recipe& recipe, dist::Group& ranks) {
  const std::optional<std::filesystem::path> folder = checkpoint_of(recipe, ranks);
  if (!folder) return std::nullopt;
  ResumePoint point{.folder = *folder, .state = checkpoint::load_state(*folder), .run = {}};
  point.run = {.step = point.state.step,
               .before = report::read_run_json(*folder / checkpoint::kRecordName)};
  check_same_meaning(recipe, point.run.before.recipe, *folder);
  return point;
}

}  // namespace snug::train
