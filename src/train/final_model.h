// The model that a run leaves in out_dir/final: that of its best validation, kept as the run goes
// on, or that of its last step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/dist/group.h"
#include "data/dataset.h"
#include "engine/run.h"
#include "recipe/recipe.h"
#include "report/run_record.h"
#include "train/base_model.h"
#include "train/records/live.h"
#include "train/records/run_log.h"

namespace snug::train {

std::filesystem::path final_folder(const recipe::Recipe& recipe);

// The checkpoint in `out_dir` of the record's last step, if there is one.
std::optional<std::filesystem::path> last_checkpoint(const std::string& out_dir,
                                                     const report::RunRecord& record);

// All methods are called by all ranks, in the same order.
class FinalModel {
 public:
  struct Parts {
    const recipe::Recipe& recipe;
    const data::Dataset& dataset;
    BaseModel& base;
    const engine::Run& run;
    dist::Group& ranks;
    RunLog& log;
    Live& live;
  };
  // Borrows its parts.
  explicit FinalModel(const Parts& parts);

  // Takes the best model that a run which goes on from `step` left here into the record: the run
  // may have ended with a validation that its last checkpoint does not know.
  void remember_best(int64_t step);
  // In place of the one that was the best before. What cannot be written is warned of: training
  // goes on, and may find a better one.
  void write_best();
  // At the end: keeps the best model where there is one, else writes that of the last step. A full
  // disk is waited for. Throws UserError.
  void finish();

  // Where the model is; empty: nowhere yet.
  const std::filesystem::path& written() const { return written_; }

 private:
  void write_folder(const std::filesystem::path& folder, const report::BestRecord* best);
  bool holds_best() const;
  void tell_of_best();
  void write_last();
  std::string what_remains() const;
  bool is_first() const { return parts_.ranks.rank() == 0; }

  Parts parts_;
  std::filesystem::path folder_, written_;
};

}  // namespace snug::train
