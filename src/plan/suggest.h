// Suggests changes to a recipe that does not fit: first those that leave the training the same,
// cheapest first, then those that change it, least first. Every change is planned on meta.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "models/model.h"
#include "plan/candidate.h"
#include "plan/devices/device_profile.h"
#include "recipe/recipe.h"

namespace snug::plan {

struct Suggestion {
  std::string options;           // as typed on the command line
  std::string cost;              // in plain words
  int64_t peak_allocated = 0;    // predicted
  int64_t host_bytes = 0;        // host_bytes_needed(), if the recipe lacks host memory; else 0
  int64_t needed_on_device = 0;  // as bytes_on_device
  double step_seconds = 0;       // by the cost model: good for comparing
  double time_factor = 0;        // time per token, relative to the recipe's; 0: not known
  bool same_training = true;     // leaves the training the same
  bool adds_adapters = false;    // turns full fine-tuning into snug finetune
  bool fits = true;              // false: nothing fits; this is the smallest plan that was tried
};

// Changes and combinations of changes with which the run fits into device and host, without
// changes that save nothing and with at most one optimizer. If nothing fits, only the smallest
// plan, with `fits` false.
std::vector<Suggestion> suggest(const models::Model& model, const recipe::Recipe& recipe,
                                const Workload& work, const DeviceProfile& device);

// Only the changes to the training, each alone, with checkpointing and smaller micro-batches where
// it takes them: what --fit, which changes no number, leaves out.
std::vector<Suggestion> suggest_other_training(const models::Model& model,
                                               const recipe::Recipe& recipe, const Workload& work,
                                               const DeviceProfile& device);

}  // namespace snug::plan
