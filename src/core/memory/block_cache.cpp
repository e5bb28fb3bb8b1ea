// SPDX-License-Identifier: Apache-2.0
#include "core/memory/block_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

#include "base/log.h"
#include "core/memory/allocators.h"

namespace snug::memory {
namespace {

constexpr size_t kHugeBytes = size_t{4} << 20;  // from this size on 2 MiB pages pay

// Bytes that may be mapped beyond the peak demand, since fragmentation leaves free ranges that are
// too short.
constexpr size_t kSlackBytes = size_t{48} << 20;
constexpr size_t kSlackShare = 64;

size_t round_up(size_t bytes) {
  const size_t unit = bytes >= kHugeBytes ? size_t{64} << 10 : size_t{4} << 10;
  return (bytes + unit - 1) / unit * unit;
}

void* try_map(size_t bytes) {
  return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

}  // namespace

void* BlockCache::take(size_t bytes) {
  const size_t rounded = round_up(bytes);
  void* data = take_free(rounded);
  return data != nullptr ? data : map_new(rounded);
}

// Best fit: takes part of the shortest free range that is long enough. A pinned block is taken
// whole, if at most an eighth larger, or at most twice the size if others would have to be unmapped
// for a new one.
void* BlockCache::take_free(size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = by_size_.lower_bound({bytes, nullptr});
  if (found == by_size_.end()) return nullptr;
  const auto [size, begin] = *found;
  const size_t spare = mapped_ + bytes > limit(bytes) ? bytes : bytes / 8;
  if (pinned_ && size > bytes + spare) return nullptr;
  remove_free(begin, size);
  const size_t taken = pinned_ ? size : bytes;
  if (taken < size) add_free(begin + taken, size - taken);
  in_use_[begin] = taken;
  note_peak();
  return begin;
}

void BlockCache::give_back(void* data) {
  const std::lock_guard lock(mutex_);
  const auto found = in_use_.find(data);
  auto* begin = static_cast<std::byte*>(data);
  size_t bytes = found->second;
  in_use_.erase(found);
  if (!pinned_) {
    const auto after = free_.lower_bound(begin);
    if (after != free_.begin()) {
      const auto [start, size] = *std::prev(after);
      if (start + size == begin) {
        remove_free(start, size);
        begin = start;
        bytes += size;
      }
    }
    if (after != free_.end() && after->first == begin + bytes) {
      const auto [start, size] = *after;
      remove_free(start, size);
      bytes += size;
    }
  }
  add_free(begin, bytes);
}

void BlockCache::release() {
  const std::lock_guard lock(mutex_);
  while (!free_.empty()) {
    const auto [begin, bytes] = *free_.begin();
    remove_free(begin, bytes);
    unmap(begin, bytes);
  }
  peak_ = mapped_;
}

size_t BlockCache::cached() const {
  const std::lock_guard lock(mutex_);
  return cached_;
}

size_t BlockCache::mapped() const {
  const std::lock_guard lock(mutex_);
  return mapped_;
}

void BlockCache::note_peak() { peak_ = std::max(peak_, mapped_ - cached_); }

// The limit of mapped bytes once `bytes` more are in use.
size_t BlockCache::limit(size_t bytes) const {
  const size_t need = std::max(peak_, mapped_ - cached_ + bytes);
  return need + std::max(kSlackBytes, need / kSlackShare);
}

// Unmaps free memory until `bytes` more may be mapped: the end of the shortest range that suffices,
// else the longest range.
void BlockCache::make_room(size_t bytes) {
  const std::lock_guard lock(mutex_);
  while (!free_.empty() && mapped_ + bytes > limit(bytes)) {
    const size_t excess = round_up(mapped_ + bytes - limit(bytes));
    const auto enough = by_size_.lower_bound({excess, nullptr});
    const auto [size, begin] = enough != by_size_.end() ? *enough : *std::prev(by_size_.end());
    remove_free(begin, size);
    const size_t kept = pinned_ || size < excess ? 0 : size - excess;
    if (kept > 0) add_free(begin, kept);
    unmap(begin + kept, size - kept);
  }
}

void* BlockCache::map_new(size_t bytes) {
  make_room(bytes);
  void* data = try_map(bytes);
  if (data == MAP_FAILED) {
    release();
    data = try_map(bytes);
  }
  if (data == MAP_FAILED) return nullptr;
  if (bytes >= kHugeBytes) ::madvise(data, bytes, MADV_HUGEPAGE);
  if (pinned_ && !pin_memory(data, bytes) && !warned_.exchange(true))
    warn(
        "the driver refuses to pin host memory, so copies between host and GPU are slow and block "
        "the program; raise the limit on locked memory (ulimit -l)");
  const std::lock_guard lock(mutex_);
  in_use_[data] = bytes;
  mapped_ += bytes;
  note_peak();
  return data;
}

void BlockCache::unmap(std::byte* begin, size_t bytes) {
  if (pinned_) unpin_memory(begin);
  ::munmap(begin, bytes);
  mapped_ -= bytes;
}

void BlockCache::add_free(std::byte* begin, size_t bytes) {
  free_[begin] = bytes;
  by_size_.insert({bytes, begin});
  cached_ += bytes;
}

void BlockCache::remove_free(std::byte* begin, size_t bytes) {
  free_.erase(begin);
  by_size_.erase({bytes, begin});
  cached_ -= bytes;
}

}  // namespace snug::memory
