// SPDX-License-Identifier: Apache-2.0
#include "train/validation.h"

#include <algorithm>
#include <numeric>

#include "data/micro_batch.h"
#include "setup/batch.h"

namespace snug::train {

ValidationResult validate(exec::Executor& executor, const data::SampleStore& samples,
                          const ValidationOptions& options, dist::Group* data) {
  const int64_t ranks = data == nullptr ? 1 : data->size();
  const int64_t rank = data == nullptr ? 0 : data->rank();
  int64_t batches = (samples.count() + options.micro_batch_size - 1) / options.micro_batch_size;
  if (options.max_batches > 0) batches = std::min(batches, options.max_batches);
  double sum = 0;
  ValidationResult result;
  // All run as many, since they run the same units at the same time: who has none left repeats one.
  for (int64_t first = 0; first < batches; first += ranks) {
    const bool counts = first + rank < batches;
    const int64_t begin = (counts ? first + rank : first) * options.micro_batch_size;
    std::vector<int64_t> indices(
        static_cast<size_t>(std::min(options.micro_batch_size, samples.count() - begin)));
    std::iota(indices.begin(), indices.end(), begin);
    const data::MicroBatch batch = data::make_micro_batch(
        samples, indices,
        {.packing = options.packing, .ignore_index = static_cast<int32_t>(options.ignore_index)});
    const double loss =
        executor.loss(setup::to_device(batch, executor.device()),
                      {.compute = options.compute, .ignore_index = options.ignore_index});
    if (!counts) continue;
    sum += loss;
    result.tokens += batch.loss_tokens;
  }
  if (data != nullptr) {
    const auto total = data->sum({sum, static_cast<double>(result.tokens)});
    sum = total[0];
    result.tokens = static_cast<int64_t>(total[1]);
  }
  result.loss = result.tokens > 0 ? sum / static_cast<double>(result.tokens) : 0;
  return result;
}

}  // namespace snug::train
