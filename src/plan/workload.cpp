// SPDX-License-Identifier: Apache-2.0
#include "plan/workload.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/error.h"

namespace snug::plan {
namespace {

// One with this source, one with that target.
data::Sample joined(const data::SampleStore& store, int64_t source, int64_t target) {
  data::Sample result = store.sample(source);
  const data::Sample other = store.sample(target);
  result.ids.resize(static_cast<size_t>(result.source_tokens));
  result.labels.resize(result.ids.size());
  result.ids.insert(result.ids.end(), other.ids.begin() + other.source_tokens, other.ids.end());
  result.labels.insert(result.labels.end(), other.labels.begin() + other.source_tokens,
                       other.labels.end());
  return result;
}

// The samples with most tokens. An encoder's and its decoder's may be of different samples, and
// then no micro-batch of the data has as much of both as this one.
data::SampleStore largest_samples(const data::SampleStore& store, int64_t count) {
  const std::vector<int64_t> sources = store.longest_sources(count);
  const std::vector<int64_t> targets = store.longest_targets(count);
  return data::SampleStore::build(
      std::ssize(sources), store.ignore_index(),
      [&](int64_t i) {
        const auto at = static_cast<size_t>(i);
        return joined(store, sources[at], targets[at]);
      },
      /*num_workers=*/1);
}

int64_t sum(const data::SampleStore& store, const std::vector<int64_t>& samples,
            int64_t (data::SampleStore::*tokens)(int64_t) const) {
  return std::accumulate(
      samples.begin(), samples.end(), int64_t{0},
      [&](int64_t so_far, int64_t sample) { return so_far + (store.*tokens)(sample); });
}

// Whether these, the longest as a whole, have the longest sources too, and with them the longest
// targets.
bool have_most_of_both(const data::SampleStore& store, const std::vector<int64_t>& samples) {
  const auto count = std::ssize(samples);
  const auto length = &data::SampleStore::length, source = &data::SampleStore::source_tokens;
  const std::vector<int64_t> targets = store.longest_targets(count);
  return sum(store, samples, source) == sum(store, store.longest_sources(count), source) &&
         sum(store, samples, length) - sum(store, samples, source) ==
             sum(store, targets, length) - sum(store, targets, source);
}

}  // namespace

bool is_too_large(const Workload& work, int64_t micro_batch_size) {
  const int64_t samples = std::min(micro_batch_size, work.samples.count());
  return samples * work.samples.longest() > kMostTokensAtOnce;
}

data::MicroBatch largest_micro_batch(const Workload& work, const recipe::Recipe& recipe,
                                     int64_t micro_batch_size) {
  if (is_too_large(work, micro_batch_size))
    throw UserError(
        "train.micro_batch_size = {}: with samples of up to {} tokens a micro-batch may have more "
        "than {} tokens, the most that snug takes; use {} at most, or a shorter "
        "train.max_seq_length",
        micro_batch_size, work.samples.longest(), kMostTokensAtOnce,
        std::max<int64_t>(1, kMostTokensAtOnce / work.samples.longest()));
  const int64_t num_samples = std::min(micro_batch_size, work.samples.count());
  const auto ignore_index = static_cast<int32_t>(recipe.data.ignore_index);
  const data::MicroBatchOptions options = {.packing = recipe.data.packing,
                                           .ignore_index = ignore_index,
                                           .padding_in_loss = recipe.data.padding_in_loss,
                                           .reading = work.reading};
  const std::vector<int64_t> longest = work.samples.longest_samples(num_samples);
  data::MicroBatch batch = data::make_micro_batch(work.samples, longest, options);
  const bool picks_rows = batch.picks_rows;
  if (work.reading.source && !have_most_of_both(work.samples, longest)) {
    const data::SampleStore largest = largest_samples(work.samples, num_samples);
    batch = data::make_micro_batch(largest, largest.longest_samples(num_samples), options);
  }
  // Of data to come a part will have no loss, if prompts are masked.
  batch.picks_rows = picks_rows || (work.made_up && recipe.data.mask_prompt);
  constexpr int32_t kAnyToken = 0;
  const int64_t most = work.samples.most_targets(num_samples);
  for (int32_t& target : batch.targets) {
    if (batch.loss_tokens >= most) break;
    if (target != ignore_index) continue;
    target = kAnyToken;
    ++batch.loss_tokens;
  }
  SNUG_CHECK(batch.loss_tokens >= most, "{} targets in a micro-batch that can have only {}",
             batch.loss_tokens, most);
  return batch;
}

}  // namespace snug::plan
