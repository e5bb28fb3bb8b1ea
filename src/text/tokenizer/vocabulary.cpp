// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer/vocabulary.h"

#include <cstring>
#include <limits>

#include "base/error.h"

namespace snug::tokenizer {

// Eight bytes per round of multiply and fold; words are short, so this is most of the cost of a
// cache lookup.
uint64_t Vocabulary::hash(std::string_view text) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ull;
  uint64_t state = text.size() * kMultiplier;
  const auto fold = [&](uint64_t word) {
    state = (state ^ word) * kMultiplier;
    state ^= state >> 32;
  };
  while (text.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, text.data(), 8);
    fold(word);
    text.remove_prefix(8);
  }
  uint64_t word = 0;
  if (!text.empty()) std::memcpy(&word, text.data(), text.size());
  fold(word);
  return state;
}

size_t Vocabulary::slot_of(std::string_view token) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash(token) & mask;
  while (slots_[slot] >= 0 && this->token(slots_[slot]) != token) slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::grow() {
  slots_.assign(slots_.empty() ? 1024 : slots_.size() * 2, -1);
  for (int32_t id = 0; id < end_id(); ++id) {
    if (has(id)) slots_[slot_of(token(id))] = id;
  }
}

void Vocabulary::add(std::string_view token, int32_t id, std::string_view where) {
  if (id < 0 || id >= kMaxTokenId) {
    throw UserError("{}: the id {} of '{}' is not between 0 and {}", where, id, token,
                    kMaxTokenId - 1);
  }
  if (has(id)) {
    throw UserError("{}: the id {} belongs to '{}' and to '{}'; every token needs its own", where,
                    id, this->token(id), token);
  }
  if (token.size() + arena_.size() > std::numeric_limits<uint32_t>::max()) {
    throw UserError("{}: the tokens take more than 4 GiB", where);
  }
  if (count_ * 2 >= slots_.size()) grow();
  const size_t slot = slot_of(token);
  if (slots_[slot] >= 0) {
    throw UserError("{}: the token '{}' has the ids {} and {}", where, token, slots_[slot], id);
  }
  if (id >= end_id()) entries_.resize(static_cast<size_t>(id) + 1);
  entries_[id] = {static_cast<uint32_t>(arena_.size()), static_cast<int32_t>(token.size())};
  arena_ += token;
  slots_[slot] = id;
  ++count_;
}

int32_t Vocabulary::find(std::string_view token) const {
  return slots_.empty() ? -1 : slots_[slot_of(token)];
}

std::string_view Vocabulary::token(int32_t id) const {
  if (!has(id)) return {};
  return std::string_view(arena_).substr(entries_[id].offset, entries_[id].length);
}

bool Vocabulary::has(int32_t id) const {
  return id >= 0 && id < end_id() && entries_[id].length >= 0;
}

}  // namespace snug::tokenizer
