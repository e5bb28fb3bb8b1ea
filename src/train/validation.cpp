// SPDX-License-Identifier: Apache-2.0
#include "train/validation.h"

#include <numeric>

#include "data/micro_batch.h"
#include "setup/batch.h"

namespace snug::train {

ValidationResult validate(exec::Executor& executor, const data::SampleStore& samples,
                          const ValidationOptions& options) {
  double sum = 0;
  ValidationResult result;
  int64_t batches = 0;
  for (int64_t begin = 0; begin < samples.count(); begin += options.micro_batch_size) {
    if (options.max_batches > 0 && batches == options.max_batches) break;
    ++batches;
    std::vector<int64_t> indices(
        static_cast<size_t>(std::min(options.micro_batch_size, samples.count() - begin)));
    std::iota(indices.begin(), indices.end(), begin);
    const data::MicroBatch batch = data::make_micro_batch(
        samples, indices,
        {.packing = options.packing, .ignore_index = static_cast<int32_t>(options.ignore_index)});
    sum += executor.loss(setup::to_device(batch, executor.device()),
                         {.compute = options.compute, .ignore_index = options.ignore_index});
    result.tokens += batch.loss_tokens;
  }
  result.loss = result.tokens > 0 ? sum / static_cast<double>(result.tokens) : 0;
  return result;
}

}  // namespace snug::train
