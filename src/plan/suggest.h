// What to change in a recipe that does not fit, cheapest in time first; each one tried on meta.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "config/recipe.h"
#include "data/micro_batch.h"
#include "data/sample_store.h"
#include "models/model.h"

namespace snug::plan {

struct Suggestion {
  std::string options;         // as typed on the command line
  std::string cost;            // in plain words
  int64_t peak_allocated = 0;  // predicted
};

// The micro-batch with most tokens that this recipe can meet: its longest samples together.
data::MicroBatch largest_micro_batch(const data::SampleStore& samples, const config::Recipe& recipe,
                                     int64_t micro_batch_size);

// Changes, alone and then together, after which the run fits into `budget_bytes`.
std::vector<Suggestion> suggest(const models::Model& model, const config::Recipe& recipe,
                                const data::SampleStore& samples, int64_t max_seqlen,
                                int64_t budget_bytes, at::DeviceType device = at::kCPU);

}  // namespace snug::plan
