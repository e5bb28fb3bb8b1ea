// The merges of a byte-pair encoding: (left id, right id) to rank and merged id. Open addressing,
// since this lookup is where BPE spends its time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace snug::tokenizer {

class MergeTable {
 public:
  struct Merge {
    uint32_t rank;
    int32_t id;
  };

  void reserve(size_t count) { slots_.assign(std::bit_ceil(count * 2 + 2), Slot{}); }

  // A pair given twice takes its later rank. No more pairs than were reserved.
  void add(int32_t left, int32_t right, Merge merge) {
    slot_of(left, right) = {key(left, right), merge};
  }

  const Merge* find(int32_t left, int32_t right) const {
    const Slot& slot = const_cast<MergeTable*>(this)->slot_of(left, right);
    return slot.key == kFree ? nullptr : &slot.merge;
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Slot {
    uint64_t key = kFree;
    Merge merge{};
  };

  static uint64_t key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  Slot& slot_of(int32_t left, int32_t right) {
    const uint64_t wanted = key(left, right);
    const size_t mask = slots_.size() - 1;
    size_t slot = (wanted * 0x9E3779B97F4A7C15ull) >> 32 & mask;
    while (slots_[slot].key != wanted && slots_[slot].key != kFree) slot = (slot + 1) & mask;
    return slots_[slot];
  }

  std::vector<Slot> slots_;
};

}  // namespace snug::tokenizer
