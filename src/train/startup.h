// The start of a run: the clock of its stages, the other processes, and the checkpoint to resume
// from.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "core/dist/group.h"
#include "core/dist/world.h"
#include "files/checkpoint/training_checkpoint.h"
#include "recipe/recipe.h"
#include "report/run_record.h"
#include "train/records/run_log.h"

namespace snug::train {

// The trained model's folder in out_dir.
inline constexpr const char* kFinalName = "final";

// The time between the command and the first step.
class StartupClock {
 public:
  // Ends a stage that began with the previous call, or with the program.
  void end_stage(const char* name);
  void begin_first_step() { record_.first_step_begun = last_; }
  // Later calls change nothing.
  void end_step();

  const report::StartupRecord& record() const { return record_; }

 private:
  report::StartupRecord record_;
  double last_ = 0;
};

// Connects to the other processes of a run, if there are any. Throws UserError unless all processes
// have the same program and recipe.
std::shared_ptr<dist::World> join_world(const recipe::Recipe& recipe);

// With --resume auto or true: what to say where out_dir holds the results of a run with this recipe
// that has come to its end, so that nothing is left to do; else empty. How a run is watched and
// where it runs does not count.
std::string words_on_finished_run(const recipe::Recipe& recipe);

// Writes the report page of a finished run from its run.json, if there is none: the disk may have
// had no room for it.
void write_missing_report(const std::filesystem::path& out_dir);

// The checkpoint that --resume names, and the record of the run until then.
struct ResumePoint {
  std::filesystem::path folder;  // of the checkpoint
  checkpoint::TrainingState state;
  Resumed run;
};

// Empty if the run starts from the beginning. Throws UserError if the checkpoint does not exist or
// its recipe means a different training. Called by all of `ranks`.
std::optional<ResumePoint> find_resume_point(const recipe::Recipe& recipe, dist::Group& ranks);

}  // namespace snug::train
