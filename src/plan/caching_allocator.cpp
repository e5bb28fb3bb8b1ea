// SPDX-License-Identifier: Apache-2.0
#include "plan/caching_allocator.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <span>

namespace snug::plan {
namespace {

constexpr int64_t kMinBlock = 512;            // all sizes are rounded to multiples
constexpr int64_t kSmallSize = 1 << 20;       // largest of the small pool
constexpr int64_t kSmallSegment = 2 << 20;    // segments of the small pool
constexpr int64_t kLargeSegment = 20 << 20;   // segments for allocations below kMinLargeAlloc
constexpr int64_t kMinLargeAlloc = 10 << 20;  // from here on a segment is made to measure
constexpr int64_t kRoundLarge = 2 << 20;      // … rounded to this

int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

size_t pool_of(size_t stream, bool small) { return 2 * stream + (small ? 1 : 0); }

int64_t segment_bytes(int64_t bytes) {
  if (bytes <= kSmallSize) return kSmallSegment;
  return bytes < kMinLargeAlloc ? kLargeSegment : round_up(bytes, kRoundLarge);
}

}  // namespace

void CachingAllocator::insert_free(const Block& b) {
  free_[b.pool].insert({b.bytes, {b.segment, b.offset}});
}
void CachingAllocator::erase_free(const Block& b) {
  free_[b.pool].erase({b.bytes, {b.segment, b.offset}});
}

bool CachingAllocator::allocate(uint64_t id, int64_t bytes, size_t stream) {
  const int64_t rounded = std::max(kMinBlock, round_up(bytes, kMinBlock));
  const bool small = rounded <= kSmallSize;
  const size_t pool = pool_of(stream, small);
  auto found = free_[pool].lower_bound({rounded, {-1, -1}});
  if (found == free_[pool].end()) {
    if (!add_segment(segment_bytes(rounded), pool)) return false;
    found = free_[pool].lower_bound({rounded, {-1, -1}});
  }
  Block& block = blocks_.at(found->second);
  free_[pool].erase(found);
  const int64_t rest = block.bytes - rounded;
  if (small ? rest >= kMinBlock : rest > kSmallSize) {
    const Block tail{block.segment, block.offset + rounded, rest, pool, false};
    block.bytes = rounded;
    blocks_[{tail.segment, tail.offset}] = tail;
    insert_free(tail);
  }
  block.used = true;
  live_[id] = {block.segment, block.offset};
  return true;
}

bool CachingAllocator::add_segment(int64_t bytes, size_t pool) {
  const auto is_over = [&] { return limit_ > 0 && reserved_ + bytes > limit_; };
  if (is_over()) {
    ++calls_.retries;
    if (on_retry_) on_retry_();
    empty_cache();
  }
  if (is_over()) return false;
  ++calls_.gets;
  const Block block{next_segment_++, 0, bytes, pool, false};
  segments_[block.segment] = bytes;
  blocks_[{block.segment, 0}] = block;
  insert_free(block);
  reserved_ += bytes;
  peak_reserved_ = std::max(peak_reserved_, reserved_);
  return true;
}

void CachingAllocator::empty_cache() {
  for (auto it = segments_.begin(); it != segments_.end();) {
    const Block& first = blocks_.at({it->first, 0});
    if (first.used || first.bytes != it->second ||
        first.pool >= pool_of(kStreamOfRecorded, false)) {
      ++it;
      continue;
    }
    erase_free(first);
    ++calls_.gives;
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

namespace {

constexpr int64_t kLeastBytes = 512;                  // all sizes are rounded to multiples
constexpr int64_t kSmallBytes = 1 << 20;              // largest of the small pool
constexpr int64_t kGranules[] = {20 << 20, 2 << 20};  // of the large and the small pool
constexpr int64_t kEndless = int64_t{1} << 60;

int64_t rounded_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

ExpandableAllocator::ExpandableAllocator(int64_t limit, std::function<void()> on_retry)
    : limit_(limit), on_retry_(std::move(on_retry)) {
  for (size_t i = 0; i < pools_.size(); ++i) {
    pools_[i].granule = kGranules[i % 2];
    pools_[i].blocks[0] = {.bytes = kEndless};
    pools_[i].unmapped = {0};
  }
}

bool ExpandableAllocator::allocate(uint64_t id, int64_t bytes, size_t stream) {
  const int64_t rounded = std::max(kLeastBytes, rounded_up(bytes, kLeastBytes));
  const size_t index = pool_of(stream, rounded <= kSmallBytes);
  Pool& pool = pools_[index];
  auto block = best_fit(pool, rounded);
  // The least it requests from the device, as with fixed segments.
  const int64_t asked = std::max(pool.granule, rounded_up(rounded, kGranules[1]));
  const auto is_over = [&] { return limit_ > 0 && reserved_ + asked > limit_; };
  if (block == pool.blocks.end()) {
    if (is_over()) {
      ++calls_.retries;
      if (on_retry_) on_retry_();
      empty_cache();
    }
    if (is_over()) return false;
    block = expand(pool, rounded);
  }
  live_[id] = {index, split(pool, block, rounded, State::Used)};
  return true;
}

void ExpandableAllocator::free(uint64_t id) {
  const auto live = live_.find(id);
  if (live == live_.end()) return;
  const auto [index, block] = live->second;
  live_.erase(live);
  merge(pools_[index], block, State::Free);
}

// The smallest block that is large enough; a larger one is preferred to one that could still grow.
ExpandableAllocator::Blocks::iterator ExpandableAllocator::best_fit(Pool& pool, int64_t bytes) {
  const auto room = [](const auto& entry) {
    const Blocks::iterator block = entry.second, next = std::next(block);
    return block->second.bytes + (next->second.state == State::Unmapped ? next->second.bytes : 0);
  };
  auto found = pool.free.lower_bound({bytes, -1});
  if (found == pool.free.end()) return pool.blocks.end();
  for (auto next = std::next(found); next != pool.free.end() && room(*next) < room(*found); ++next)
    found = next;
  return found->second;
}

// Maps what is missing behind the first free memory that has room to grow, in whole granules.
ExpandableAllocator::Blocks::iterator ExpandableAllocator::expand(Pool& pool, int64_t bytes) {
  // Mapped memory alone is not enough, or best_fit() would have found it.
  Blocks::iterator first;
  for (const int64_t begin : pool.unmapped) {
    first = pool.blocks.find(begin);
    if (first != pool.blocks.begin() && std::prev(first)->second.state == State::Free) --first;
    int64_t room = 0;
    for (auto block = first; room < bytes && block != pool.blocks.end(); ++block) {
      if (block->second.state == State::Used) break;
      room += block->second.bytes;
    }
    if (room >= bytes) break;
  }
  const int64_t wanted_end = first->first + bytes;
  while (true) {
    if (first->second.state == State::Unmapped) {
      const int64_t end =
          rounded_up(std::min(wanted_end, first->first + first->second.bytes), pool.granule);
      first = split(pool, first, end - first->first, State::Used);
      count(first->second.bytes);
      first = merge(pool, first, State::Free);
    }
    if (first->first + first->second.bytes >= wanted_end) return first;
    first = std::next(first);
  }
}

void ExpandableAllocator::set_state(Pool& pool, Blocks::iterator block, State state) {
  const std::pair entry{block->second.bytes, block->first};
  if (block->second.state == State::Free) pool.free.erase(entry);
  if (block->second.state == State::Unmapped) pool.unmapped.erase(block->first);
  if (state == State::Free) pool.free.emplace(entry, block);
  if (state == State::Unmapped) pool.unmapped.insert(block->first);
  block->second.state = state;
}

// Gives a block that state, and makes it one with its neighbours of the same.
ExpandableAllocator::Blocks::iterator ExpandableAllocator::merge(Pool& pool, Blocks::iterator block,
                                                                 State state) {
  set_state(pool, block, State::Used);
  const auto take_in = [&](Blocks::iterator first, Blocks::iterator second) {
    first->second.bytes += second->second.bytes;
    pool.blocks.erase(second);
    return first;
  };
  if (const auto next = std::next(block);
      next != pool.blocks.end() && next->second.state == state) {
    set_state(pool, next, State::Used);
    block = take_in(block, next);
  }
  if (block != pool.blocks.begin() && std::prev(block)->second.state == state) {
    set_state(pool, std::prev(block), State::Used);
    block = take_in(std::prev(block), block);
  }
  set_state(pool, block, state);
  return block;
}

// Cuts a block behind `bytes`; returns the part before, which gets that state.
ExpandableAllocator::Blocks::iterator ExpandableAllocator::split(Pool& pool, Blocks::iterator block,
                                                                 int64_t bytes, State state) {
  const State before = block->second.state;
  const int64_t rest = block->second.bytes - bytes;
  set_state(pool, block, State::Used);
  if (rest > 0) {
    block->second.bytes = bytes;
    const auto tail =
        pool.blocks.emplace_hint(std::next(block), block->first + bytes, Block{rest, State::Used});
    set_state(pool, tail, before);
  }
  set_state(pool, block, state);
  return block;
}

void ExpandableAllocator::count(int64_t mapped) {
  (mapped > 0 ? calls_.gets : calls_.gives) += 1;
  reserved_ += mapped;
  peak_reserved_ = std::max(peak_reserved_, reserved_);
}

void ExpandableAllocator::empty_cache() {
  for (Pool& pool : std::span(pools_).first(pool_of(kStreamOfRecorded, false)))
    for (auto block = pool.blocks.begin(); block != pool.blocks.end(); ++block) {
      if (block->second.state != State::Free) continue;
      const int64_t begin = rounded_up(block->first, pool.granule);
      const int64_t end = (block->first + block->second.bytes) / pool.granule * pool.granule;
      if (begin >= end) continue;
      if (begin > block->first)
        block = std::next(split(pool, block, begin - block->first, State::Free));
      block = split(pool, block, end - begin, State::Used);
      count(begin - end);
      block = merge(pool, block, State::Unmapped);
    }
}

}  // namespace snug::plan
