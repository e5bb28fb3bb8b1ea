// snug lab run: runs the rows of a suite in order, then its searches, and writes the reports.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lab/lab.h"
#include "lab/result.h"
#include "lab/run/lab_folder.h"
#include "lab/run/progress.h"
#include "lab/run/row_work.h"
#include "recipe/options/commands.h"

namespace snug::lab {

// A search for the largest value that fits, assuming that all smaller values fit too.
struct Edge {
  std::optional<int64_t> fits;       // the largest value that fitted; empty: none
  std::optional<int64_t> too_large;  // the smallest value that did not; empty: none
  bool is_found = false;             // false: a trial had no answer, and the search gave up
};

// Tries a value. Empty: no answer, because the run failed for another reason than memory.
using Fits = std::function<std::optional<bool>(int64_t)>;

// Searches `first` to `last`, starting at `start`: moves on by `step`, doubled each time, until the
// answer changes, then halves the gap. No value is tried twice.
Edge find_edge(int64_t first, int64_t last, int64_t start, int64_t step, const Fits& fits);

class LabRunner {
 public:
  // `folder` is for the run and its report. Throws UserError for unknown rows, options and devices
  // and for missing files, before anything is written.
  LabRunner(recipe::LabOptions options, Suite suite, Mode mode, const std::filesystem::path& folder,
            std::string command, const DeviceQuestions& devices);

  // Locks the folder; throws UserError if another lab uses it. Returns the results so far, also
  // when the user asked to stop.
  const LabRun& run(Progress& progress);
  // Writes the reports, unless options.dry_run, and unlocks the folder. Throws UserError that says
  // how to continue, for example after a full disk.
  void end();
  bool was_interrupted() const { return is_stopped_; }
  std::string title() const { return run_.suite.name + ": " + run_.suite.title; }

 private:
  struct Try {
    Row row;
    RowResult result;
    bool is_kept = false;
  };
  struct PlannedSearch {
    std::vector<Try> tries;
    Edge edge;
  };
  void choose_rows();
  void check_models() const;
  void check_profiles(const DeviceQuestions& devices) const;
  void begin();  // the first to write files
  void warn_of_machine() const;
  void warn_of_budgets() const;
  void begin_record();
  bool is_chosen(const Row& row) const { return chosen_.contains(row.id); }

  std::vector<Row> earlier_tries() const;
  std::string wanted_from(const Row& row) const;  // RowResult::made_from of a current result
  static size_t at_once();                        // plans that run in parallel
  std::future<RowResult> begin_plan(const Row& row) const;
  void plan_rows();
  void run_rows();
  void plan_searches();
  PlannedSearch plan_search(const Group& group) const;
  void run_search(const Group& group);
  void say_edge(const Group& group, const Edge& edge);

  std::optional<RowResult> done_before(const Row& row) const;
  // Empty if the user stopped it.
  std::optional<RowResult> do_row(const Row& row);
  std::string why_not_run(const Row& row) const;
  void note(const Row& row, RowResult result, bool is_kept);
  void note_not_run(const Row& row, const std::string& why);
  void add_row(const Row& row);
  bool stops() const;

  recipe::LabOptions options_;
  std::string command_;
  GpusHere gpus_;  // only in Mode::Run
  LabRun run_;
  std::unique_ptr<LabFolder> folder_;  // none in a dry run
  std::unique_ptr<RowWork> work_;
  Progress* progress_ = nullptr;
  std::set<std::string> chosen_;
  std::vector<Group> searches_;
  std::map<std::string, std::string> ended_sweeps_;  // group -> the row that ended it
  bool is_stopped_ = false;
};

// out/lab/SUITE, followed by -plan, -plan-DEVICE (if it is not the suite's device) or -scaled.
std::filesystem::path default_folder(const Suite& suite, Mode mode, const std::string& device);

}  // namespace snug::lab
