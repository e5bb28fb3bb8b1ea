// Passes without gradients: the loss over held-out samples, and documents' log-probabilities.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/dist/mesh.h"
#include "core/nn/objective.h"
#include "data/micro_batch.h"
#include "engine/exec/executor.h"

namespace snug::engine {

struct ValidationOptions {
  int64_t micro_batch_size = 1;
  int64_t first_sample = 0;
  int64_t max_batches = 0;  // 0: all
  at::ScalarType compute = at::kFloat;
  const nn::Objective* objective = nullptr;  // null: cross-entropy
  // Called after each micro-batch of log-probabilities, as often in every process: with the number
  // of samples that all of them have done.
  std::function<void(int64_t)> after_each = {};
};

struct ValidationResult {
  double loss = 0;              // mean over the objective's terms
  std::vector<double> figures;  // of the objective, in its order: means over the terms
  int64_t tokens = 0;
  int64_t terms = 0;          // of the objective
  std::vector<double> means;  // over the terms, of which the loss and the figures are made
};

// Of these results the one that all their samples together would have, each of them as often as its
// weight says.
struct WeightedResult {
  ValidationResult result;
  double weight = 1;
};
ValidationResult together(std::span<const WeightedResult> results, const nn::Objective& objective);

// Over `num_samples` of `samples` from options.first_sample on. `mesh`: processes that share the
// work, each of which calls this; null: one alone.
ValidationResult validate(exec::Executor& executor, data::BatchSource& samples, int64_t num_samples,
                          const ValidationOptions& options, const dist::Mesh* mesh = nullptr);

// The mean over the terms of objective.estimate() over the other documents of these micro-batches'
// samples, of all processes, each of which calls this with as many micro-batches. An empty one is
// run as well, but does not count. 0 where the objective estimates nothing.
double estimate(exec::Executor& executor, data::BatchSource& samples,
                const std::vector<std::vector<int64_t>>& micro_batches,
                const ValidationOptions& options, const dist::Mesh* mesh = nullptr);

// The sum of the log-probabilities of each document's targets, with the weights as they are: before
// training what a preference compares with, its reference. In the order of the samples' documents.
// `objective` and max_batches have no effect. Every process gets all.
std::vector<double> log_probs_of_documents(exec::Executor& executor, data::BatchSource& samples,
                                           int64_t num_samples, const ValidationOptions& options,
                                           const dist::Mesh* mesh = nullptr);

// Of each target, in order, the `top_k` tokens that are most likely: their ids, then their
// log-probabilities, 2 K numbers, which `take` is given micro-batch by micro-batch. One process.
// Throws UserError for a log-probability that is no number.
void top_k_of_targets(exec::Executor& executor, data::BatchSource& samples, int64_t num_samples,
                      int64_t top_k, const ValidationOptions& options,
                      const std::function<void(std::span<const float>)>& take);

// The scores of each document, `labels` of them one after the other, of a model that scores
// documents; samples have the columns of such an objective. The rest is as above.
std::vector<double> scores_of_documents(exec::Executor& executor, data::BatchSource& samples,
                                        int64_t num_samples, int64_t labels,
                                        const ValidationOptions& options,
                                        const dist::Mesh* mesh = nullptr);

}  // namespace snug::engine
