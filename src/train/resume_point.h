// Where a run goes on from: the checkpoint that --resume means, and what the run was until then.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>

#include "core/dist/group.h"
#include "files/checkpoint/training_checkpoint.h"
#include "recipe/recipe.h"
#include "train/records/run_log.h"

namespace snug::train {

struct ResumePoint {
  std::filesystem::path folder;  // of the checkpoint
  checkpoint::TrainingState state;
  Resumed run;
};

// Nothing where the run starts afresh. Throws UserError for a checkpoint that is not there or whose
// recipe means another training. To be called by all of `ranks`.
std::optional<ResumePoint> find_resume_point(const recipe::Recipe& recipe, dist::Group& ranks);

}  // namespace snug::train
