// What libtorch's CUDA caching allocator reserves for a sequence of allocations: its rounding,
// segments, splitting, best fit and merging, replayed on sizes alone (c10/cuda
// CUDACachingAllocator, default settings, one stream).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>

namespace snug::plan {

class CachingAllocator {
 public:
  // `limit`: what the device can give it; when a new segment would pass it, all free segments are
  // given back first. 0: no limit.
  explicit CachingAllocator(int64_t limit = 0) : limit_(limit) {}

  // Returns false when the device has no memory left for it; then nothing has changed but the
  // cache.
  bool allocate(uint64_t id, int64_t bytes);
  void free(uint64_t id);

  int64_t reserved() const { return reserved_; }
  int64_t peak_reserved() const { return peak_reserved_; }

 private:
  struct Block {
    int64_t segment = 0, offset = 0, bytes = 0;
    bool small = false, used = false;
  };
  using Place = std::pair<int64_t, int64_t>;  // segment, offset

  bool add_segment(int64_t bytes, bool small);
  void release_free_segments();
  void insert_free(const Block& block);
  void erase_free(const Block& block);

  int64_t limit_;
  int64_t reserved_ = 0, peak_reserved_ = 0;
  int64_t next_segment_ = 0;
  std::map<Place, Block> blocks_;
  std::map<int64_t, int64_t> segments_;          // segment -> bytes
  std::set<std::pair<int64_t, Place>> free_[2];  // by size; [1]: small pool
  std::unordered_map<uint64_t, Place> live_;
};

}  // namespace snug::plan
