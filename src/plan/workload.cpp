// SPDX-License-Identifier: Apache-2.0
#include "plan/workload.h"

#include <algorithm>

namespace snug::plan {

data::MicroBatch largest_micro_batch(const Workload& work, const config::Recipe& recipe,
                                     int64_t micro_batch_size) {
  const int64_t num_samples = std::min(micro_batch_size, work.samples.count());
  const auto ignore_index = static_cast<int32_t>(recipe.data.ignore_index);
  data::MicroBatch batch =
      data::make_micro_batch(work.samples, work.samples.longest_samples(num_samples),
                             {.packing = recipe.data.packing,
                              .ignore_index = ignore_index,
                              .padding_in_loss = recipe.data.padding_in_loss,
                              .reading = work.reading});
  constexpr int32_t kAnyToken = 0;
  const int64_t most = work.samples.most_targets(num_samples);
  for (int32_t& target : batch.targets) {
    if (batch.loss_tokens >= most) break;
    if (target != ignore_index) continue;
    target = kAnyToken;
    ++batch.loss_tokens;
  }
  return batch;
}

}  // namespace snug::plan
