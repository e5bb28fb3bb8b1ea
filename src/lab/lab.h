// snug lab: run, list, report, compare.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "recipe/options/commands.h"

namespace snug::lab {

// The GPUs that this program can use: none in a build without CUDA, or if the environment hides
// them, whatever the driver shows.
struct GpusHere {
  int count = 0;
  std::string name;      // of the first, as CUDA gives it
  std::string why_none;  // the reason if there are none
};

// Answers that need the engine, which this folder does not use.
struct DeviceQuestions {
  GpusHere (*gpus)();
  // Throws UserError if plans cannot be made for this device (a profile's name or a YAML file) with
  // `budget_bytes` of memory (0: all it has).
  void (*check_profile)(const std::string& device, int64_t budget_bytes);
};

// Returns the exit code: 0 if all rows have a result (out of memory is one), 1 if a row crashed, 2
// if a row failed because of its recipe or data, or an outcome is not the expected one. `devices`
// is asked for the GPUs when rows run at full size.
int lab(const recipe::LabOptions& options, const std::vector<std::string>& words,
        const DeviceQuestions& devices);

}  // namespace snug::lab
