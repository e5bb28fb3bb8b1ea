// Splits work into blocks that do not depend on the number of threads, so that results, and their
// order of summation, are the same on one thread and on many.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace snug::kernels::cpu {

// Elements per block: small enough for an even distribution, large enough to amortize scheduling.
inline constexpr int64_t kBlockElements = int64_t{1} << 15;

// body(block) for each block. A thread takes an eighth of its share of adjacent blocks at a time;
// other threads take over the rest if it is delayed.
template <class Body>
void parallel_blocks(int64_t num_blocks, int num_threads, const Body& body) {
  const int wanted = num_threads > 0 ? num_threads : omp_get_max_threads();
  const int threads = static_cast<int>(std::min<int64_t>(wanted, num_blocks));
  if (threads <= 1) {
    for (int64_t block = 0; block < num_blocks; ++block) body(block);
    return;
  }
  const int64_t at_a_time = std::max<int64_t>(1, num_blocks / (8 * threads));
#pragma omp parallel for schedule(dynamic, at_a_time) num_threads(threads)
  for (int64_t block = 0; block < num_blocks; ++block) body(block);
}

// body(begin, end) over ranges of [0, count), where each item has `elements_per_item` elements.
template <class Body>
void parallel_ranges(int64_t count, int64_t elements_per_item, int num_threads, const Body& body) {
  const int64_t step =
      std::max<int64_t>(1, kBlockElements / std::max<int64_t>(1, elements_per_item));
  parallel_blocks((count + step - 1) / step, num_threads,
                  [&](int64_t block) { body(block * step, std::min(count, (block + 1) * step)); });
}

// A range of one tensor of a list.
struct TensorBlock {
  int64_t tensor = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// Splits all tensors of a list (anything with a .count) into ranges.
template <class Tensors>
std::vector<TensorBlock> tensor_blocks(const Tensors& tensors) {
  std::vector<TensorBlock> blocks;
  for (size_t t = 0; t < tensors.size(); ++t) {
    for (int64_t begin = 0; begin < tensors[t].count; begin += kBlockElements) {
      const int64_t end = std::min<int64_t>(tensors[t].count, begin + kBlockElements);
      blocks.push_back({static_cast<int64_t>(t), begin, end});
    }
  }
  return blocks;
}

}  // namespace snug::kernels::cpu
