// Large blocks of host memory from mmap, kept for reuse when freed. Every step frees and allocates
// the same sizes; returning each block to the system would cost a page fault per 4 KiB, a tenth of
// a step on two cores.
//
// Free memory is a set of address ranges; a request takes part of one, and adjacent free ranges are
// joined. So blocks of different sizes reuse the same memory, and the mapped memory (and with it
// the resident set size) stays near the peak demand.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

namespace snug::memory {

class BlockCache {
 public:
  // The driver knows each pinned block by its address, so pinned blocks are neither split nor
  // joined.
  explicit BlockCache(bool pinned) : pinned_(pinned) {}

  // Null if the system refuses.
  void* take(size_t bytes);
  void give_back(void* data);
  // Returns all free blocks to the system, and keeps no more from now on than what comes needs.
  void release();

  size_t cached() const;  // bytes
  size_t mapped() const;  // bytes, in use and cached

 private:
  void* take_free(size_t bytes);
  void* map_new(size_t bytes);
  void make_room(size_t bytes);
  size_t limit(size_t bytes) const;
  void note_peak();
  void add_free(std::byte* begin, size_t bytes);
  void remove_free(std::byte* begin, size_t bytes);
  void unmap(std::byte* begin, size_t bytes);

  const bool pinned_;
  std::atomic<bool> warned_ = false;
  mutable std::mutex mutex_;
  std::map<std::byte*, size_t> free_;                // address -> bytes
  std::set<std::pair<size_t, std::byte*>> by_size_;  // the same
  std::unordered_map<void*, size_t> in_use_;         // address -> bytes
  size_t cached_ = 0, mapped_ = 0;
  size_t peak_ = 0;  // the highest number of bytes in use so far
};

}  // namespace snug::memory
