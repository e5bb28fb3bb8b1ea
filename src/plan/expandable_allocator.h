// What libtorch's CUDA caching allocator reserves with expandable segments, replayed on sizes alone
// (c10/cuda CUDACachingAllocator, one stream): each pool is one stretch of addresses, of which as
// much is mapped to memory as is needed, a granule at a time. Blocks of all sizes come from the
// same memory, so that hardly more is reserved than was ever live at one time.
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

class ExpandableAllocator {
 public:
  // `limit`: what the device can give it; when more would be mapped, all free memory is given back
  // first. 0: no limit.
  explicit ExpandableAllocator(int64_t limit = 0);

  // Returns false when the device has no memory left for it.
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
  // Blocks by where they begin; each ends where the next one begins, the last one, unmapped, never.
  using Blocks = std::map<int64_t, Block>;
  struct Pool {
    int64_t granule = 0;
    Blocks blocks;
    std::set<std::pair<int64_t, int64_t>> free;  // bytes, begin
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
