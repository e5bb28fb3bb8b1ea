// Memory before a byte is allocated: the true engine runs one optimizer step on meta, and the
// ledger is read. There is no second model of memory to keep in step with the program.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/recipe.h"
#include "data/micro_batch.h"
#include "memory/ledger.h"
#include "models/model.h"

namespace snug::plan {

struct Prediction {
  int64_t peak_allocated = 0;
  memory::ByCategory by_category{};  // live at the moment of the peak
  int64_t peak_host = 0;             // what offloading puts into host memory beside the device
  memory::ByCategory host_by_category{};
};

// `largest` is the micro-batch with most tokens of the run; `max_seqlen` as given to the engine.
// Of the run itself on `device`, beyond what that holds already.
Prediction predict(const models::Model& model, const config::Recipe& recipe,
                   const data::MicroBatch& largest, int64_t max_seqlen,
                   at::DeviceType device = at::kCPU);

}  // namespace snug::plan
