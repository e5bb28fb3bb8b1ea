// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace snug::lab {

// The GPUs that runs of this program use here: none in a build without CUDA, or where the
// environment hides them, whatever the driver shows.
struct GpusHere {
  int count = 0;
  std::string name;      // of the first, in CUDA's words
  std::string why_none;  // in words, where there are none
};

// What only a program with devices knows.
struct DeviceQuestions {
  GpusHere (*gpus)();
  // Throws UserError where nothing can be planned for this device (a profile's name or a YAML file)
  // with so many bytes of memory; 0: all that it has.
  void (*check_profile)(const std::string& device, int64_t budget_bytes);
};

}  // namespace snug::lab
