// What came of a row, and of a suite: row.json and lab.json.
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
  OutOfMemory,  // said so itself, or the kernel's out-of-memory killer ended it
  Error,        // an exit code of its own: a recipe, data, a full disk
  Crashed,      // a signal
  TimedOut,
  Interrupted,  // by the person; done again next time
  NotRun,       // listed only, or beyond a sweep's first out-of-memory
};
const char* name(Outcome outcome);

using Bytes = std::map<std::string, int64_t>;  // by category, as in run.json

// One moment of an optimizer step, as a plan's timeline has it.
struct Moment {
  std::string unit, phase;
  int64_t allocated = 0;
  Bytes by_category;
};

// Memory and time of one step: foreseen by a plan, counted for another program, or measured.
struct Figures {
  bool fits = true;
  int64_t peak_allocated = 0;
  int64_t peak_reserved = 0;    // 0: not known (a CPU)
  int64_t reserved_ahead = 0;   // counted: where the host gathers ahead; 0: it does not
  int64_t after_forward = 0;    // 0: not known
  int64_t peak_host = 0;        // offloaded there; measured: of the whole process
  int64_t parameter_bytes = 0;  // 0: not known
  Bytes by_category;            // at the peak
  double step_seconds = 0;
  double tokens_per_second = 0;
  double model_flops_per_second = 0;
  double share_of_peak = 0;      // of the device's FLOP/s, 0..1; 0: not known
  double device_use = 0;         // busy share of the step, 0..1; 0: not known
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
  std::string reason;   // one line; empty where all is well
  std::string command;  // that repeats it, as a shell reads it
  std::string plan_command;
  std::string made_from;    // words and version: the same again is not done again
  double seconds = 0;       // of the whole process
  int64_t limit_bytes = 0;  // what the row had: budget, or device without what libraries take
  std::optional<Figures> predicted;
  std::optional<Figures> like;
  std::string like_program;
  std::vector<std::string> like_notes;  // what the count is, where it is kept apart
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
  std::map<std::string, std::string> made_from;  // row -> what a result of it is to be made from
  std::vector<std::string> rows;                 // ids that were asked for, in order
  double seconds = 0;                            // all rows so far
};

// Reading throws UserError naming the file: missing, damaged, of another schema.
std::string row_json(const RowResult& result);
RowResult read_row_json(const std::filesystem::path& path);
std::string lab_json(const LabRecord& record);
LabRecord read_lab_json(const std::filesystem::path& path);
// The suite as it was read, a search's tries among its rows: a report needs no file of the recipes.
std::string suite_json(const Suite& suite);
Suite read_suite_json(const std::filesystem::path& path);

// What is to be said of a row of which `left` is there: a result that was made from other words or
// files than the row has now is none.
RowResult result_of(const LabRecord& record, const std::string& id, std::optional<RowResult> left);

// A lab run as a report wants it: the suite, what was asked for, and every result that is there.
struct LabRun {
  std::filesystem::path folder;
  LabRecord record;
  Suite suite;
  Mode mode = Mode::Plan;
  std::vector<Row> rows;                             // those asked for, a search's tries among them
  std::vector<RowResult> results;                    // one a row, NotRun where there is none yet
  const Row* find_row(const std::string& id) const;  // nullptr: none
  const RowResult* find(const std::string& id) const;
};
// Throws UserError: no folder of a lab run, or a file of it that is damaged.
LabRun read_lab_run(const std::filesystem::path& folder);

}  // namespace snug::lab
