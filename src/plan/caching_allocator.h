// What libtorch's CUDA caching allocator reserves for a sequence of allocations, replayed on sizes
// alone: rounding, segments, splitting, best fit and merging as in c10/cuda's CUDACachingAllocator
// with one stream, with its default settings and with expandable segments.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

namespace snug::plan {

class CachingAllocator {
 public:
  // `limit`: the device's memory; all free segments are released before a new one would exceed it.
  // 0: no limit.
  explicit CachingAllocator(int64_t limit = 0) : limit_(limit) {}

  // Returns false if the device has not enough memory; then only the cache has changed.
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

// With expandable segments each pool is one range of addresses, mapped to memory a granule at a
// time as needed. Blocks of all sizes share that memory, so that hardly more is reserved than was
// live at the peak.
class ExpandableAllocator {
 public:
  // `limit`: the device's memory; all free memory is released before more than that would be
  // mapped. 0: no limit.
  explicit ExpandableAllocator(int64_t limit = 0);

  // Returns false if the device has not enough memory.
  bool allocate(uint64_t id, int64_t bytes);
  void free(uint64_t id);

  int64_t reserved() const { return reserved_; }
  int64_t peak_reserved() const { return peak_reserved_; }

 private:
  enum class State { Used, Free, Unmapped };
  struct Block {
    int64_t bytes = 0;
    State state = State::Unmapped;
  };
  // Blocks by their start; each ends where the next one starts. The last one is unmapped and has no
  // end.
  using Blocks = std::map<int64_t, Block>;
  struct Pool {
    int64_t granule = 0;
    Blocks blocks;
    std::set<std::pair<int64_t, int64_t>> free;  // bytes, begin
    std::set<int64_t> unmapped;                  // begins
  };

  Blocks::iterator best_fit(Pool& pool, int64_t bytes);
  Blocks::iterator expand(Pool& pool, int64_t bytes);
  static void set_state(Pool& pool, Blocks::iterator block, State state);
  static Blocks::iterator merge(Pool& pool, Blocks::iterator block);
  static Blocks::iterator split(Pool& pool, Blocks::iterator block, int64_t bytes);
  void count(int64_t mapped);
  void give_free_memory_back();

  int64_t limit_;
  int64_t reserved_ = 0, peak_reserved_ = 0;
  std::array<Pool, 2> pools_;                                      // [1]: of small blocks
  std::unordered_map<uint64_t, std::pair<size_t, int64_t>> live_;  // pool, begin
};

}  // namespace snug::plan
