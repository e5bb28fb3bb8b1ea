// The largest value that fits, where everything below one that fits does too.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace snug::lab {

struct Edge {
  std::optional<int64_t> fits;       // the largest that was seen to fit; empty: none
  std::optional<int64_t> too_large;  // the smallest that was seen not to; empty: none
  bool is_found = false;             // false: `fits` had no answer, and the search gave up
};

// What is tried: empty: no answer, as when a run ends for another reason than memory.
using Fits = std::function<std::optional<bool>(int64_t)>;

// Between `first` and `last`, beginning at `start`: goes on by `step`, then twice as far each time,
// until the answer changes, and halves the gap. No value is tried twice.
Edge find_edge(int64_t first, int64_t last, int64_t start, int64_t step, const Fits& fits);

}  // namespace snug::lab
