// What libtorch's CUDA caching allocator reserves for a sequence of allocations, replayed on sizes
// alone: rounding, segments, splitting, best fit and merging as in c10/cuda's CUDACachingAllocator,
// with its default settings and with expandable segments. Each stream has memory of its own. Where
// the device refuses more, cached memory is given back and the request is made again, as there.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

namespace snug::plan {

constexpr size_t kNumStreams = 3;  // that have memory
// Stands for recorded work, which has memory of its own too, that is not given back.
constexpr size_t kStreamOfRecorded = 2;

// Requests to the device's driver, which are slow, and stop the device when memory is given back.
struct DriverCalls {
  int64_t retries = 0;  // requests that were refused until cached memory had been given back
  int64_t gets = 0, gives = 0;  // segments, or stretches of expandable ones

  friend DriverCalls operator-(const DriverCalls& a, const DriverCalls& b) {
    return {a.retries - b.retries, a.gets - b.gets, a.gives - b.gives};
  }
  bool operator==(const DriverCalls&) const = default;
};

class CachingAllocator {
 public:
  // `limit`: the device's memory; all free segments are released before a new one would exceed it.
  // 0: no limit. `on_retry` is called before that: the device has then done all its work.
  explicit CachingAllocator(int64_t limit = 0, std::function<void()> on_retry = {})
      : limit_(limit), on_retry_(std::move(on_retry)) {}

  // Returns false if the device has not enough memory; then only the cache has changed.
  bool allocate(uint64_t id, int64_t bytes, size_t stream = 0);
  void free(uint64_t id);
  void empty_cache();

  int64_t reserved() const { return reserved_; }
  int64_t peak_reserved() const { return peak_reserved_; }
  const DriverCalls& driver_calls() const { return calls_; }

 private:
  struct Block {
    int64_t segment = 0, offset = 0, bytes = 0;
    size_t pool = 0;
    bool used = false;
  };
  using Place = std::pair<int64_t, int64_t>;  // segment, offset

  bool add_segment(int64_t bytes, size_t pool);
  void insert_free(const Block& block);
  void erase_free(const Block& block);

  int64_t limit_;
  std::function<void()> on_retry_;
  int64_t reserved_ = 0, peak_reserved_ = 0;
  DriverCalls calls_;
  int64_t next_segment_ = 0;
  std::map<Place, Block> blocks_;
  std::map<int64_t, int64_t> segments_;  // segment -> bytes
  // By size; two for each stream, of large and of small blocks.
  std::array<std::set<std::pair<int64_t, Place>>, 2 * kNumStreams> free_;
  std::unordered_map<uint64_t, Place> live_;
};

// With expandable segments each pool is one range of addresses, mapped to memory a granule at a
// time as needed. Blocks of all sizes share that memory, so that hardly more is reserved than was
// live at the peak.
class ExpandableAllocator {
 public:
  // `limit`: the device's memory; all free memory is released before more than that would be
  // mapped. 0: no limit. `on_retry` as above.
  explicit ExpandableAllocator(int64_t limit = 0, std::function<void()> on_retry = {});

  // Returns false if the device has not enough memory.
  bool allocate(uint64_t id, int64_t bytes, size_t stream = 0);
  void free(uint64_t id);
  void empty_cache();

  int64_t reserved() const { return reserved_; }
  int64_t peak_reserved() const { return peak_reserved_; }
  const DriverCalls& driver_calls() const { return calls_; }

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
    std::map<std::pair<int64_t, int64_t>, Blocks::iterator> free;  // by bytes and begin
    std::set<int64_t> unmapped;                                    // begins
  };

  Blocks::iterator best_fit(Pool& pool, int64_t bytes);
  Blocks::iterator expand(Pool& pool, int64_t bytes);
  static void set_state(Pool& pool, Blocks::iterator block, State state);
  static Blocks::iterator merge(Pool& pool, Blocks::iterator block, State state);
  static Blocks::iterator split(Pool& pool, Blocks::iterator block, int64_t bytes, State state);
  void count(int64_t mapped);

  int64_t limit_;
  std::function<void()> on_retry_;
  int64_t reserved_ = 0, peak_reserved_ = 0;
  DriverCalls calls_;
  std::array<Pool, 2 * kNumStreams> pools_;  // two for each stream, of large and of small blocks
  std::unordered_map<uint64_t, std::pair<size_t, Blocks::iterator>> live_;  // with its pool
};

}  // namespace snug::plan
