// snug lab run: one suite's rows in their order, its searches behind them, and the reports.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lab/result.h"
#include "lab/run/edge.h"
#include "lab/run/gpus_here.h"
#include "lab/run/lab_folder.h"
#include "lab/run/progress.h"
#include "lab/run/row_work.h"
#include "recipe/options/commands.h"

namespace snug::lab {

class LabRunner {
 public:
  // `folder`: of the run and its report. Throws UserError for rows, options, devices and files that
  // are not there; nothing is written yet.
  LabRunner(recipe::LabOptions options, Suite suite, Mode mode, const std::filesystem::path& folder,
            std::string command, const DeviceQuestions& devices);

  // Takes the folder, which may be somebody else's: throws UserError then. Returns what there is,
  // also when the person asked to stop.
  const LabRun& run(Progress& progress);
  // Writes its reports, unless options.dry_run, and gives the folder back. Throws UserError that
  // says how to go on, such as of a full disk.
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
  void begin();  // from here on things are written
  void warn_of_machine() const;
  void warn_of_budgets() const;
  void begin_record();
  bool is_chosen(const Row& row) const { return chosen_.contains(row.id); }

  std::vector<Row> earlier_tries() const;
  std::string wanted_from(const Row& row) const;  // what a result of it is to be made from
  static size_t at_once();                        // plans, each a process
  std::future<RowResult> begin_plan(const Row& row) const;
  void plan_rows();
  void run_rows();
  void plan_searches();
  PlannedSearch plan_search(const Group& group) const;
  void run_search(const Group& group);
  void say_edge(const Group& group, const Edge& edge);

  std::optional<RowResult> done_before(const Row& row) const;
  // Nothing where the person stopped it.
  std::optional<RowResult> do_row(const Row& row);
  std::string why_not_run(const Row& row) const;
  void note(const Row& row, RowResult result, bool is_kept);
  void note_not_run(const Row& row, const std::string& why);
  void add_row(const Row& row);
  bool stops() const;

  recipe::LabOptions options_;
  std::string command_;
  GpusHere gpus_;  // asked for in Mode::Run alone
  LabRun run_;
  std::unique_ptr<LabFolder> folder_;  // none in a dry run
  std::unique_ptr<RowWork> work_;
  Progress* progress_ = nullptr;
  std::set<std::string> chosen_;
  std::vector<Group> searches_;
  std::map<std::string, std::string> ended_sweeps_;  // group -> the row that ended it
  bool is_stopped_ = false;
};

// By the options: out/lab/SUITE, with -plan, -plan-DEVICE (of another device than the suite's) or
// -scaled behind it.
std::filesystem::path default_folder(const Suite& suite, Mode mode, const std::string& device);

}  // namespace snug::lab
