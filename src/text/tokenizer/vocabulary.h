// Tokens and their ids: one string arena and one hash table, so that a vocabulary of 256k tokens
// loads in milliseconds and looks up without allocating.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace snug::tokenizer {

inline constexpr int32_t kMaxTokenId = 1 << 24;  // ids stay below

class Vocabulary {
 public:
  // Throws UserError, beginning with `where`, for an id or a token that is taken or out of range.
  void add(std::string_view token, int32_t id, std::string_view where);
  int32_t find(std::string_view token) const;  // -1 if absent
  // Empty for ids without a token; `has` tells them from an empty token.
  std::string_view token(int32_t id) const;
  bool has(int32_t id) const;
  int32_t end_id() const { return static_cast<int32_t>(entries_.size()); }  // largest id + 1

  static uint64_t hash(std::string_view text);

 private:
  struct Entry {
    uint32_t offset = 0;
    int32_t length = -1;  // -1: no token has this id
  };
  void grow();
  size_t slot_of(std::string_view token) const;

  std::string arena_;
  std::vector<Entry> entries_;  // by id
  std::vector<int32_t> slots_;  // open addressing; -1 is free
  size_t count_ = 0;
};

}  // namespace snug::tokenizer
