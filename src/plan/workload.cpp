// SPDX-License-Identifier: Apache-2.0
#include "plan/workload.h"

#include <algorithm>

namespace snug::plan {

data::MicroBatch largest_micro_batch(const Workload& work, const config::Recipe& recipe,
                                     int64_t micro_batch_size) {
  const auto indices =
      work.samples.longest_samples(std::min(micro_batch_size, work.samples.count()));
  return data::make_micro_batch(work.samples, indices,
                                {.packing = recipe.data.packing,
                                 .ignore_index = static_cast<int32_t>(recipe.data.ignore_index),
                                 .reading = work.reading});
}

}  // namespace snug::plan
