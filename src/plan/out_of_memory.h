// What a run that ends for memory leaves behind: who asked for what, what was live then, and the
// changes to its recipe that fit.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/memory/ledger.h"
#include "plan/predict.h"
#include "plan/suggest.h"
#include "report/run_record.h"

namespace snug::plan {

// A plan that does not fit is out of memory before anything was allocated.
class PlanDoesNotFit : public OutOfMemory {
 public:
  PlanDoesNotFit(const std::string& what, report::OutOfMemoryRecord record)
      : OutOfMemory(what), record_(std::move(record)) {}
  const report::OutOfMemoryRecord& record() const { return record_; }

 private:
  report::OutOfMemoryRecord record_;
};

struct TooMuch {
  int64_t needed = 0;        // of the device
  int64_t there = 0;         // of it
  int64_t of_libraries = 0;  // what the device's libraries hold beside the plan
  bool is_budget = true;     // a person's; false: what the device has left
};
PlanDoesNotFit plan_does_not_fit(const plan::Prediction& prediction, const TooMuch& bytes);
// The same of --host_memory, for `ranks` processes of this machine.
PlanDoesNotFit plan_needs_more_host(const plan::Prediction& prediction, at::DeviceType device,
                                    int64_t ranks, int64_t host_bytes);

// Without suggestions.
report::OutOfMemoryRecord out_of_memory_record(const OutOfMemory& error);

// `command` with each suggestion's options behind it.
std::vector<report::SuggestionRecord> suggestion_records(
    const std::vector<plan::Suggestion>& suggestions, const std::string& command);

// A line of the terminal each, after a line break: with the host memory that is held to its limit,
// on a cpu the device's included, where that is what did not fit. What changes the training says so
// above its lines.
std::string suggestion_lines(const std::vector<plan::Suggestion>& suggestions);
// Where nothing fits: a sentence with the smallest plan that was found.
std::string smallest_plan_text(const std::vector<plan::Suggestion>& suggestions);
// The lines with what they are for, and the first one as a whole `command`.
std::string suggestions_text(const std::vector<plan::Suggestion>& suggestions,
                             const std::string& command);

}  // namespace snug::plan
