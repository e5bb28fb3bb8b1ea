// Sizes that a plan needs where there is no device to ask, nor CUDA's headers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/kernels/cuda/embedding_segments.h"

namespace snug::kernels::cuda {

inline constexpr int64_t kScratchAlignment = 256;

// Bytes of arguments for a kernel that takes a list of tensors.
inline constexpr int64_t kListBytes = 30000;

inline int64_t aligned_scratch(int64_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

// CUB tells what its sort needs for the device at hand alone. This is as much on any: keys and
// values once more, 256 counters of 4 bytes for each tile of 2048 or more, and 8 KiB for the digits
// with all that is rounded up. CUB refuses to sort with too little.
inline int64_t sort_scratch_bytes(int64_t pairs) {
  return 2 * aligned_scratch(4 * pairs) + pairs / 2 + (int64_t{16} << 10);
}

// Scratch for embedding_backward: tokens, sorted ids, sorted tokens, and room for the sort, then
// for sums of segments.
inline int64_t embedding_scratch_bytes(int64_t tokens, int64_t dim) {
  return 3 * aligned_scratch(4 * tokens) +
         std::max(sort_scratch_bytes(tokens), 4 * dim * embedding_partial_rows(tokens));
}

}  // namespace snug::kernels::cuda
