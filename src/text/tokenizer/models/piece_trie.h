// A byte trie that finds all stored pieces that are prefixes of a text. Children are in sibling
// lists, since fan-out is small below the first byte, which has a table.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace snug::tokenizer {

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
