// The results of a row and of a suite: row.json and lab.json.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lab/suite/suite.h"

namespace snug::lab {

enum class Outcome {
  Ok,
  OutOfMemory,  // by its own exit code, or killed by the kernel's out-of-memory killer
  Error,        // another exit code: a fault in the recipe or data, a full disk
  Crashed,      // ended by a signal
  TimedOut,
  Interrupted,  // by the user; runs again next time
  NotRun,       // only listed, or after a sweep's first row that ran out of memory
};
const char* name(Outcome outcome);

using Bytes = std::map<std::string, int64_t>;  // by category, as in run.json

// One moment of an optimizer step, as a plan's timeline has it.
struct Moment {
  std::string unit, phase;
  int64_t allocated = 0;
  Bytes by_category;
};

// Memory and time of one step: predicted by a plan, computed for another program, or measured.
struct Figures {
  bool fits = true;
  int64_t peak_allocated = 0;
  int64_t peak_reserved = 0;     // 0: not known (a CPU)
  double num_alloc_retries = 0;  // of the allocator, in a step
  int64_t after_forward = 0;     // 0: not known
  int64_t peak_host = 0;         // planned: of offloaded state; measured: of the whole process
  int64_t parameter_bytes = 0;   // 0: not known
  Bytes by_category;             // at the peak
  double step_seconds = 0;
  double tokens_per_second = 0;
  double model_flops_per_second = 0;
  double share_of_peak = 0;      // of the device's FLOP/s, 0..1; 0: not known
  double device_use = 0;         // busy share of the step, 0..1; 0: not known
  double device_use_spread = 0;  // its deviation over the run's steps; 0: not known
  int64_t tokens_per_epoch = 0;  // 0: not known
  std::vector<Moment> timeline;  // of plans
};

struct LossPoint {
  int64_t step = 0;
  double loss = 0;
};

// One of run.json's phases, by category.
struct PhasePoint {
  int64_t step = 0;
  std::string phase;
  Bytes by_category;
  int64_t allocated = 0, peak = 0, reserved = 0;
};

struct RowResult {
  std::string id;
  Outcome outcome = Outcome::NotRun;
  std::string reason;   // one line; empty if the outcome is Ok
  std::string command;  // repeats the row, quoted for a shell
  std::string plan_command;
  std::string made_from;    // arguments and version: while they are the same, the result is kept
  double seconds = 0;       // of the whole process
  int64_t limit_bytes = 0;  // the memory budget, or the device's memory less what libraries take
  std::optional<Figures> predicted;
  std::optional<Figures> like;
  std::string like_program;
  std::vector<std::string> like_notes;  // remarks on `like`
  std::optional<Figures> measured;
  std::vector<LossPoint> losses;
  std::vector<PhasePoint> phases;
  int64_t parameters = 0, trained = 0;  // counts
  std::string device;
  int world_size = 1;
};

// lab.json.
struct LabRecord {
  int schema = 1;
  std::string suite, title, about, source, mode, command, started;  // started: UTC, ISO 8601
  std::string version;                                              // snug's
  std::string device;                            // planned for, or of this machine
  std::string hardware;                          // processor, cores, memory, GPUs of this machine
  std::map<std::string, std::string> versions;   // libraries
  std::map<std::string, std::string> made_from;  // row -> RowResult::made_from of a current result
  std::vector<std::string> rows;                 // requested ids, in order
  double seconds = 0;                            // all rows so far
};

// Reading throws UserError naming the file if it is missing, damaged or of another schema.
std::string row_json(const RowResult& result);
RowResult read_row_json(const std::filesystem::path& path);
std::string lab_json(const LabRecord& record);
LabRecord read_lab_json(const std::filesystem::path& path);
// The suite with the rows that its searches tried, so that a report does not need the recipes.
std::string suite_json(const Suite& suite);
Suite read_suite_json(const std::filesystem::path& path);
// The same without a schema, for snug lab list.
std::string list_rows_json(const Suite& suite);

// The result to report for a row whose stored result is `left`; one made from other options or
// files than the row has now does not count.
RowResult result_of(const LabRecord& record, const std::string& id, std::optional<RowResult> left);

// A lab run for its report: the suite, the requested rows, and the results so far.
struct LabRun {
  std::filesystem::path folder;
  LabRecord record;
  Suite suite;
  Mode mode = Mode::Plan;
  std::vector<Row> rows;                             // requested, including those searches tried
  std::vector<RowResult> results;                    // one per row; NotRun: none yet
  const Row* find_row(const std::string& id) const;  // nullptr: none
  const RowResult* find(const std::string& id) const;
};
// Throws UserError if it is not the folder of a lab run, or a file in it is damaged.
LabRun read_lab_run(const std::filesystem::path& folder);

}  // namespace snug::lab
