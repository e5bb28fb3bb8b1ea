// An importance matrix of a model from samples: what its linear layers read, by the names that
// their weights have in GGUF files (files/weights/gguf/importance.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "data/micro_batch.h"
#include "engine/exec/executor.h"
#include "files/weights/gguf/importance.h"
#include "models/model.h"

namespace snug::engine {

struct CollectOptions {
  int64_t micro_batch_size = 1;
  at::ScalarType compute = at::kFloat;
  // Called after each micro-batch, with the samples so far.
  std::function<void(int64_t done)> progress;
};

// Runs the model over `num_samples` samples, every token of which counts, without gradients. The
// head has no entry, as with llama-imatrix.
files::ImportanceMatrix collect_importance(exec::Executor& executor, const models::Model& model,
                                           data::BatchSource& samples, int64_t num_samples,
                                           const CollectOptions& options);

}  // namespace snug::engine
