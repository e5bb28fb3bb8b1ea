// SPDX-License-Identifier: Apache-2.0
#include "data/mismatched.h"

#include <algorithm>
#include <span>
#include <vector>

#include "data/sample.h"

namespace snug::data {
namespace {

using Stored = std::span<const int32_t>;

// The first token has no target's place before it.
size_t prompt_length(Stored stored) {
  size_t length = std::min<size_t>(1, stored.size());
  while (length < stored.size() && stored[length] < 0) ++length;
  return length;
}

Stored prompt_of(const SampleStore& samples, int64_t index) {
  const Stored stored = samples.document(index, 0).stored;
  return stored.first(prompt_length(stored));
}

Sample continued(Stored prompt, Stored answer, int32_t ignore_index) {
  Sample sample;
  for (const int32_t stored : prompt) sample.ids.push_back(stored < 0 ? ~stored : stored);
  sample.labels.assign(sample.ids.size(), ignore_index);
  for (const int32_t stored : answer) {
    sample.ids.push_back(stored < 0 ? ~stored : stored);
    sample.labels.push_back(stored < 0 ? ignore_index : stored);
  }
  sample.raw_tokens = std::ssize(sample.ids);
  return sample;
}

int64_t row_before(int64_t index, int64_t back, int64_t count) {
  return (index + count - back % count) % count;
}

}  // namespace

int64_t mismatch(const SampleStore& samples) {
  // More answers to one prompt seldom stand together.
  constexpr int64_t kFarthest = 64;
  const int64_t count = samples.num_different();
  int64_t best = 0, fewest = count;
  for (int64_t back = 1; back < std::min(count, kFarthest + 1) && fewest > 0; ++back) {
    int64_t same = 0;
    for (int64_t i = 0; i < count; ++i)
      same +=
          std::ranges::equal(prompt_of(samples, i), prompt_of(samples, row_before(i, back, count)))
              ? 1
              : 0;
    if (same < fewest) best = back;
    fewest = std::min(fewest, same);
  }
  return best;
}

SampleStore mismatched(const SampleStore& samples, int64_t back, int64_t limit) {
  const int64_t count = samples.num_different();
  const int32_t ignore_index = samples.ignore_index();
  const auto make = [&](int64_t i) {
    const Stored other = samples.document(row_before(i, back, count), 0).stored;
    std::vector<Sample> made{
        continued(prompt_of(samples, i), other.subspan(prompt_length(other)), ignore_index)};
    cut_together(made, limit, ignore_index);
    return made.front();
  };
  SampleStore others = SampleStore::build(count, ignore_index, make, /*num_workers=*/1);
  if (samples.count() > count) others.repeat_to(samples.count());
  return others;
}

}  // namespace snug::data
