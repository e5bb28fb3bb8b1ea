// Records and messages of plans and runs that do not fit: the request that failed, what was live,
// the changes that would fit, and the reasons for what --fit chose.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/memory/ledger.h"
#include "plan/fit.h"
#include "plan/predict.h"
#include "plan/suggest.h"
#include "recipe/recipe.h"
#include "report/run_record.h"

namespace snug::plan {

// Out of memory in the plan, before anything was allocated.
class PlanDoesNotFit : public OutOfMemory {
 public:
  PlanDoesNotFit(const std::string& what, report::OutOfMemoryRecord record)
      : OutOfMemory(what), record_(std::move(record)) {}
  const report::OutOfMemoryRecord& record() const { return record_; }

 private:
  report::OutOfMemoryRecord record_;
};

struct TooMuch {
  int64_t needed = 0;        // on the device
  int64_t there = 0;         // available on it
  int64_t of_libraries = 0;  // used by the device's libraries, beside the plan
  bool is_budget = true;     // `there` is a memory_budget; false: what the device has left
};
PlanDoesNotFit plan_does_not_fit(const plan::Prediction& prediction, const TooMuch& bytes);
// The same for --host_memory, with `ranks` processes on this machine.
PlanDoesNotFit plan_needs_more_host(const plan::Prediction& prediction, at::DeviceType device,
                                    int64_t ranks, int64_t host_bytes);

// Without suggestions.
report::OutOfMemoryRecord out_of_memory_record(const OutOfMemory& error);

// Each with `command` followed by the suggestion's options.
std::vector<report::SuggestionRecord> suggestion_records(
    const std::vector<plan::Suggestion>& suggestions, const std::string& command);

// A line for each, after a line break, with its host memory if that is what did not fit (on a CPU
// including the device's). Those that change the training come under a heading that says so.
std::string suggestion_lines(const std::vector<plan::Suggestion>& suggestions);
// If nothing fits: a sentence with the smallest plan that was found.
std::string smallest_plan_text(const std::vector<plan::Suggestion>& suggestions);
// The lines with a heading, and the first one as a complete `command`.
std::string suggestions_text(const std::vector<plan::Suggestion>& suggestions,
                             const std::string& command);

// Why --fit chose techniques that it uses only as a last resort or with permission: sentences, each
// after a line break; empty if it chose none. `asked` is the recipe before the search.
std::string choice_reasons(const plan::Fit& fit, const recipe::Recipe& asked,
                           const plan::DeviceProfile& device);
// If nothing fits: the smallest combination, and what --fit_disk would allow; each after a line
// break.
std::string why_none_fits(const plan::Fit& fit, const plan::DeviceProfile& device);

}  // namespace snug::plan
