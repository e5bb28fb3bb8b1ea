// SPDX-License-Identifier: Apache-2.0
#include "core/dist/staging.h"

#include <algorithm>

namespace snug::dist {
namespace {

constexpr int64_t kMostBytesAtOnce = 32 << 10;
constexpr int64_t kMostStagingBytes = 8 << 20;
// Message length: long enough to amortize latency, short enough to stay in a cache.
constexpr int64_t kLongestChunkBytes = 256 << 10;
constexpr int64_t kShortestChunkBytes = 64 << 10;

constexpr int64_t kFewestPlaces = 2, kMostPlaces = 8;

constexpr int64_t kPartAlignment = 64;  // elements

}  // namespace

Staging reduce_scatter_staging(int64_t part_count, int64_t element_bytes, int size) {
  const int64_t num_others = size - 1;
  const int64_t bytes_of_each = kMostStagingBytes / std::max<int64_t>(1, num_others);
  const int64_t chunk_bytes =
      std::clamp(bytes_of_each / kFewestPlaces, kShortestChunkBytes, kLongestChunkBytes);
  const int64_t places = std::clamp(bytes_of_each / chunk_bytes, kFewestPlaces, kMostPlaces);
  Staging staging;
  staging.chunk = std::min(part_count, chunk_bytes / element_bytes);
  const int64_t chunks = (part_count + staging.chunk - 1) / std::max<int64_t>(1, staging.chunk);
  staging.num_places = static_cast<int>(std::clamp<int64_t>(chunks, 1, places));
  staging.bytes = staging.chunk * element_bytes * num_others * staging.num_places;
  return staging;
}

bool is_summed_at_once(int64_t count, int64_t element_bytes, int size) {
  return count * element_bytes * (size - 1) <= kMostBytesAtOnce;
}

int64_t all_reduce_part(int64_t count, int size) {
  const int64_t part = (count + size - 1) / size;
  return (part + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

int64_t all_reduce_staging_bytes(int64_t count, int64_t element_bytes, int size) {
  if (is_summed_at_once(count, element_bytes, size)) return count * element_bytes * (size - 1);
  return reduce_scatter_staging(all_reduce_part(count, size), element_bytes, size).bytes;
}

}  // namespace snug::dist
