// Large blocks of host memory, straight from mmap and kept when they are freed: a step frees and
// asks for the same sizes again and again, and giving each back to the system would cost a page
// fault per 4 KiB, which on two cores is a tenth of the step.
//
// What is free is a set of stretches of addresses: a request takes a piece of one, neighbours join
// again. So blocks of different sizes use the same memory one after another, and what is mapped
// stays near the highest need so far: the resident set is what people see.
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
  // Pinned blocks are known to the driver one by one: they are neither cut nor joined.
  explicit BlockCache(bool pinned) : pinned_(pinned) {}

  // Null where the system refuses.
  void* take(size_t bytes);
  void give_back(void* data);
  // Everything that is not in use back to the system.
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
  std::map<std::byte*, size_t> free_;                // by address
  std::set<std::pair<size_t, std::byte*>> by_size_;  // the same
  std::unordered_map<void*, size_t> in_use_;         // bytes of each
  size_t cached_ = 0, mapped_ = 0;
  size_t peak_ = 0;  // most that was in use at one time
};

}  // namespace snug::memory
