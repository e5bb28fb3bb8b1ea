// Loss over held-out samples.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/sample_store.h"
#include "dist/group.h"
#include "exec/executor.h"

namespace snug::train {

struct ValidationOptions {
  int64_t micro_batch_size = 1;
  int64_t max_batches = 0;  // 0: all
  at::ScalarType compute = at::kFloat;
  bool packing = true;
  int64_t ignore_index = -100;
};

struct ValidationResult {
  double loss = 0;  // mean over loss tokens
  int64_t tokens = 0;
};

// `data`: processes that share the work, each of which calls this; null: one alone.
ValidationResult validate(exec::Executor& executor, const data::SampleStore& samples,
                          const ValidationOptions& options, dist::Group* data = nullptr);

}  // namespace snug::train
