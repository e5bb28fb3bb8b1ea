// Tokens and their ids: one string arena and one hash table, so that a vocabulary of 256k tokens
// loads in milliseconds and looks up without allocating.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
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

// A byte trie that finds all stored pieces that are prefixes of a text. Children are in sibling
// lists, since fan-out is small below the first byte, which has a table.
class PieceTrie {
 public:
  PieceTrie() { first_.fill(-1); }

  // `piece` is not empty; a piece given twice keeps the later value.
  void add(std::string_view piece, int32_t value) {
    int32_t node = -1;
    for (const char byte : piece) node = child_of(node, byte);
    nodes_[node].value = value;
  }

  // Calls found(length, value) for every piece that `text` begins with, shortest first.
  template <class Found>
  void each_prefix(std::string_view text, Found&& found) const {
    int32_t node = first_[static_cast<unsigned char>(text[0])];
    for (size_t i = 0; i < text.size(); ++i) {
      while (node >= 0 && nodes_[node].byte != text[i]) node = nodes_[node].sibling;
      if (node < 0) return;
      if (nodes_[node].value >= 0) found(i + 1, nodes_[node].value);
      node = nodes_[node].child;
    }
  }

  bool may_begin_with(char byte) const { return first_[static_cast<unsigned char>(byte)] >= 0; }

 private:
  struct TrieNode {
    char byte;
    int32_t child = -1, sibling = -1, value = -1;
  };

  // The child of `parent` (-1: the root) for `byte`, made if it is not there.
  int32_t child_of(int32_t parent, char byte) {
    const int32_t head =
        parent < 0 ? first_[static_cast<unsigned char>(byte)] : nodes_[parent].child;
    for (int32_t node = head; node >= 0; node = nodes_[node].sibling) {
      if (nodes_[node].byte == byte) return node;
    }
    const auto added = static_cast<int32_t>(nodes_.size());
    nodes_.push_back({byte, -1, parent < 0 ? -1 : head, -1});
    (parent < 0 ? first_[static_cast<unsigned char>(byte)] : nodes_[parent].child) = added;
    return added;
  }

  std::array<int32_t, 256> first_{};
  std::vector<TrieNode> nodes_;
};

}  // namespace snug::tokenizer
