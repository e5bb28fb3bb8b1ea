// What a run trains on, as far as its memory and time depend on it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/micro_batch.h"
#include "data/sample_store.h"
#include "recipe/recipe.h"

namespace snug::plan {

struct Workload {
  const data::SampleStore& samples;
  int64_t max_seqlen = 0;      // of the longest sample, validation's too
  data::Reading reading = {};  // how samples become micro-batches
  bool made_up = false;        // the samples stand for data that nobody has read
};

// A micro-batch of more tokens is a mistake: their indices alone would take a plan's time.
inline constexpr int64_t kMostTokensAtOnce = int64_t{1} << 22;
// Whether a micro-batch of so many of the longest samples has more.
bool is_too_large(const Workload& work, int64_t micro_batch_size);

// The micro-batch with most tokens that this recipe can meet: its longest samples together; and
// with as many targets as any other micro-batch has, which the head's memory depends on. Throws
// UserError where it is_too_large().
data::MicroBatch largest_micro_batch(const Workload& work, const recipe::Recipe& recipe,
                                     int64_t micro_batch_size);

}  // namespace snug::plan
