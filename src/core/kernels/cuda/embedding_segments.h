// How the sum of an id's gradients is shared out among blocks, so that one that occurs thousands of
// times (padding, a comma) is not added up by a single one. Ids are sorted; a run is the stretch of
// equal ones. A run of n tokens is cut into n / kSegment segments (at least one) of kSegment
// tokens, the last of which has the rest as well. Each segment is added up in order; where there
// are several, their sums, floats in scratch, are then added in order. So up to 2 * kSegment - 1
// tokens of an id are added as the CPU adds them, more of them in a tree that depends on their
// number alone: a run repeats to the bit. These functions run on the device; the CPU runs them in a
// test.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define SNUG_HOST_DEVICE __host__ __device__
#else
#define SNUG_HOST_DEVICE
#endif

namespace snug::kernels::cuda {

inline constexpr int64_t kSegment = 64;

// Rows of scratch: a segment that is not alone has at least kSegment tokens, hence a place of its
// own among every kSegment-th.
SNUG_HOST_DEVICE constexpr int64_t embedding_partial_rows(int64_t tokens) {
  return (tokens + kSegment - 1) / kSegment;
}

// The first position from `begin` on whose id differs from that of `begin`, at most `end`.
SNUG_HOST_DEVICE inline int64_t end_of_run(const int32_t* ids, int64_t begin, int64_t end) {
  int64_t low = begin, high = end;  // ids[low] is the run's; whatever is at `high` is not
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (ids[middle] == ids[begin] ? low : high) = middle;
  }
  return high;
}

// The first position whose id is that of `position`.
SNUG_HOST_DEVICE inline int64_t begin_of_run(const int32_t* ids, int64_t position) {
  int64_t low = -1, high = position;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (ids[middle] == ids[position] ? high : low) = middle;
  }
  return high;
}

struct Segment {
  int64_t begin = 0, end = 0;  // nothing: no segment begins here
  bool alone = true;           // its sum is the run's
  int64_t row = 0;             // of scratch for its sum, where it is not
};

// The segment that begins at `position`.
SNUG_HOST_DEVICE inline Segment segment_at(const int32_t* ids, int64_t tokens, int64_t position) {
  const bool starts_run = position == 0 || ids[position - 1] != ids[position];
  if (!starts_run) {
    if (position < kSegment || ids[position - kSegment] != ids[position]) return {};
    if ((position - begin_of_run(ids, position)) % kSegment != 0) return {};
  }
  const int64_t reach = position + 2 * kSegment < tokens ? position + 2 * kSegment : tokens;
  const int64_t end = end_of_run(ids, position, reach);
  if (!starts_run && end - position < kSegment) return {};  // the segment before has them
  const bool is_last = end - position < 2 * kSegment;
  return {.begin = position,
          .end = is_last ? end : position + kSegment,
          .alone = starts_run && is_last,
          .row = embedding_partial_rows(position)};
}

// Rows of scratch that belong to one run: their sum is what its id gets.
struct Partials {
  int64_t count = 0;     // 0: no such rows begin here
  int64_t position = 0;  // of a token with that id
};

SNUG_HOST_DEVICE inline Partials partials_at(const int32_t* ids, int64_t tokens, int64_t row) {
  const int64_t position = row * kSegment;
  const int64_t begin = begin_of_run(ids, position);
  if (embedding_partial_rows(begin) != row) return {};
  const int64_t count = (end_of_run(ids, position, tokens) - begin) / kSegment;
  if (count < 2) return {};
  return {.count = count, .position = position};
}

}  // namespace snug::kernels::cuda

#undef SNUG_HOST_DEVICE
