// What to change in a recipe that does not fit: first what leaves the training as it is, cheapest
// first, then what changes it, from little to much. Every change is tried on meta.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "models/model.h"
#include "plan/devices/device_profile.h"
#include "plan/workload.h"
#include "recipe/recipe.h"

namespace snug::plan {

struct Suggestion {
  std::string options;         // as typed on the command line
  std::string cost;            // in plain words
  int64_t peak_allocated = 0;  // predicted
  int64_t host_bytes = 0;      // of the host (host_bytes_needed), where the recipe lacks that; or 0
  int64_t needed_on_device = 0;  // as bytes_on_device
  double step_seconds = 0;       // by the cost model: good for comparing
  double time_factor = 0;        // time a token, over the recipe's own; 0: that is not known
  bool same_training = true;     // what is learnt stays the same
  bool adds_adapters = false;    // where all weights trained: a run of snug finetune
  bool fits = true;  // false: nothing fits, and this is what needs least of all that was tried
};

// Changes, alone and together, after which the run fits into the device and the host. None that
// saves nothing beside the others, and one optimizer at most. Where nothing fits, the smallest plan
// alone, whose `fits` is false.
std::vector<Suggestion> suggest(const models::Model& model, const recipe::Recipe& recipe,
                                const Workload& work, const DeviceProfile& device);

}  // namespace snug::plan
