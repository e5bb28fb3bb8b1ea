// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/kernels/simulated/simulation.h"

namespace cub {

struct DeviceRadixSort {
  // Stable, as CUB's; what it takes and gives is checked like a kernel's memory.
  template <class Key, class Value>
  static cudaError_t SortPairs(void* scratch, size_t& scratch_bytes, const Key* keys,
                               Key* sorted_keys, const Value* values, Value* sorted_values,
                               int64_t count, int, int, cudaStream_t) {
    using snug::kernels::simulated::touch, snug::kernels::simulated::Use;
    const auto bytes = count * static_cast<int64_t>(sizeof(Key));
    static_assert(sizeof(Key) == sizeof(Value));
    touch("sort", keys, bytes, Use::Reads);
    touch("sort", values, bytes, Use::Reads);
    touch("sort", sorted_keys, bytes, Use::Writes);
    touch("sort", sorted_values, bytes, Use::Writes);
    touch("sort", scratch, static_cast<int64_t>(scratch_bytes), Use::Spoils);
    std::vector<int64_t> order(static_cast<size_t>(count));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return keys[a] < keys[b]; });
    for (int64_t i = 0; i < count; ++i) {
      sorted_keys[i] = keys[order[i]];
      sorted_values[i] = values[order[i]];
    }
    return cudaSuccess;
  }
};

}  // namespace cub
