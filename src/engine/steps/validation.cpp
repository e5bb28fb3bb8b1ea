// SPDX-License-Identifier: Apache-2.0
#include "engine/steps/validation.h"

#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "engine/batch.h"
#include "engine/parallel/context_parallel.h"

namespace snug::engine {

ValidationResult validate(exec::Executor& executor, data::BatchSource& samples, int64_t num_samples,
                          const ValidationOptions& options, const dist::Mesh* mesh) {
  dist::Group* data = mesh == nullptr ? nullptr : &mesh->data();
  const int64_t ranks = data == nullptr ? 1 : data->size();
  const int64_t rank = data == nullptr ? 0 : data->rank();
  int64_t batches = (num_samples + options.micro_batch_size - 1) / options.micro_batch_size;
  if (options.max_batches > 0) batches = std::min(batches, options.max_batches);
  const nn::CrossEntropy plain(nn::CrossEntropy::Options{.ignore_index = options.ignore_index});
  const nn::Objective& objective = options.objective != nullptr ? *options.objective : plain;
  double sum = 0, terms = 0;
  ValidationResult result;
  // All run as many, since they run the same units at the same time: who has none left repeats one.
  std::vector<std::vector<int64_t>> mine;
  for (int64_t first = 0; first < batches; first += ranks) {
    const int64_t begin =
        (first + rank < batches ? first + rank : first) * options.micro_batch_size;
    mine.emplace_back(static_cast<size_t>(std::min(options.micro_batch_size, num_samples - begin)));
    std::iota(mine.back().begin(), mine.back().end(), begin);
  }
  samples.expect(mine);
  for (size_t i = 0; i < mine.size(); ++i) {
    const bool counts = static_cast<int64_t>(i) * ranks + rank < batches;
    const auto made = samples.make(mine[i]);
    const data::MicroBatch& batch = *made;
    const double loss = executor.objective(
        mesh == nullptr ? engine::to_device(batch, executor.device(), options.ignore_index)
                        : engine::own_tokens(batch, executor.device(), *mesh, options.ignore_index),
        {.compute = options.compute, .objective = &objective});
    if (!counts) continue;
    sum += loss;
    terms += static_cast<double>(objective.terms(counts_of(batch)));
    result.tokens += batch.loss_tokens;
  }
  if (data != nullptr) {
    // The stage that ends the model has the sum and tells all.
    sum = mesh->group(dist::Axis::Pipeline).sum({sum}).front();
    sum = mesh->gradients().sum({sum}).front();
    const std::vector<double> counts = data->sum({static_cast<double>(result.tokens), terms});
    result.tokens = static_cast<int64_t>(counts[0]);
    terms = counts[1];
  }
  result.loss = terms > 0 ? without_sign(sum / terms) : 0;
  return result;
}

}  // namespace snug::engine
