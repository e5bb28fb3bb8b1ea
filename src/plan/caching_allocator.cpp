// SPDX-License-Identifier: Apache-2.0
#include "plan/caching_allocator.h"

#include <algorithm>
#include <iterator>

namespace snug::plan {
namespace {

constexpr int64_t kMinBlock = 512;            // all sizes are rounded to multiples
constexpr int64_t kSmallSize = 1 << 20;       // largest of the small pool
constexpr int64_t kSmallSegment = 2 << 20;    // segments of the small pool
constexpr int64_t kLargeSegment = 20 << 20;   // segments for allocations below kMinLargeAlloc
constexpr int64_t kMinLargeAlloc = 10 << 20;  // from here on a segment is made to measure
constexpr int64_t kRoundLarge = 2 << 20;      // … rounded to this

int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

int64_t segment_bytes(int64_t bytes) {
  if (bytes <= kSmallSize) return kSmallSegment;
  return bytes < kMinLargeAlloc ? kLargeSegment : round_up(bytes, kRoundLarge);
}

}  // namespace

void CachingAllocator::insert_free(const Block& b) {
  free_[b.small].insert({b.bytes, {b.segment, b.offset}});
}
void CachingAllocator::erase_free(const Block& b) {
  free_[b.small].erase({b.bytes, {b.segment, b.offset}});
}

bool CachingAllocator::allocate(uint64_t id, int64_t bytes) {
  const int64_t rounded = std::max(kMinBlock, round_up(bytes, kMinBlock));
  const bool small = rounded <= kSmallSize;
  auto found = free_[small].lower_bound({rounded, {-1, -1}});
  if (found == free_[small].end()) {
    if (!add_segment(segment_bytes(rounded), small)) return false;
    found = free_[small].lower_bound({rounded, {-1, -1}});
  }
  Block& block = blocks_.at(found->second);
  free_[small].erase(found);
  const int64_t rest = block.bytes - rounded;
  if (small ? rest >= kMinBlock : rest > kSmallSize) {
    const Block tail{block.segment, block.offset + rounded, rest, small, false};
    block.bytes = rounded;
    blocks_[{tail.segment, tail.offset}] = tail;
    insert_free(tail);
  }
  block.used = true;
  live_[id] = {block.segment, block.offset};
  return true;
}

bool CachingAllocator::add_segment(int64_t bytes, bool small) {
  if (limit_ > 0 && reserved_ + bytes > limit_) release_free_segments();
  if (limit_ > 0 && reserved_ + bytes > limit_) return false;
  const Block block{next_segment_++, 0, bytes, small, false};
  segments_[block.segment] = bytes;
  blocks_[{block.segment, 0}] = block;
  insert_free(block);
  reserved_ += bytes;
  peak_reserved_ = std::max(peak_reserved_, reserved_);
  return true;
}

void CachingAllocator::release_free_segments() {
  for (auto it = segments_.begin(); it != segments_.end();) {
    const Block& first = blocks_.at({it->first, 0});
    if (first.used || first.bytes != it->second) {
      ++it;
      continue;
    }
    erase_free(first);
    reserved_ -= it->second;
    blocks_.erase({it->first, 0});
    it = segments_.erase(it);
  }
}

void CachingAllocator::free(uint64_t id) {
  const auto live = live_.find(id);
  if (live == live_.end()) return;
  auto here = blocks_.find(live->second);
  live_.erase(live);
  here->second.used = false;
  const auto merge_with = [&](std::map<Place, Block>::iterator first,
                              std::map<Place, Block>::iterator second) {
    first->second.bytes += second->second.bytes;
    blocks_.erase(second);
    return first;
  };
  const auto next = std::next(here);
  if (next != blocks_.end() && next->first.first == here->first.first && !next->second.used) {
    erase_free(next->second);
    here = merge_with(here, next);
  }
  if (here != blocks_.begin()) {
    const auto previous = std::prev(here);
    if (previous->first.first == here->first.first && !previous->second.used) {
      erase_free(previous->second);
      here = merge_with(previous, here);
    }
  }
  insert_free(here->second);
}

}  // namespace snug::plan
