// Added tokens, which are matched in a text before any other step: special tokens (<|im_end|>) and
// words added after training. The leftmost match wins, then the longest; lstrip and rstrip also
// consume white space around a match; single_word requires word boundaries.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer/json_node.h"
#include "text/tokenizer/steps/normalizer.h"
#include "text/tokenizer/vocabulary.h"

namespace snug::tokenizer {

// The id of a token that comes behind all others, unless the vocabulary has it.
inline constexpr int32_t kNextId = -2;

struct AddedToken {
  std::string content;
  int32_t id = -1;
  std::string text;  // what it decodes to: the content, in its normalized form if it is sought so
  bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = false;
};

// A part of a text: an added token (id >= 0), or text between them (id -1).
struct Segment {
  size_t begin, end;
  int32_t id;
};

class AddedTokens {
 public:
  // `token.id` must be free in both vocabularies or belong to the same text. `where` begins error
  // messages.
  void add(AddedToken token, const Vocabulary& model, const std::string& where);
  // Of a token that was added.
  void make_special(std::string_view content);
  // Call once after the last add: `normalized` tokens are matched in normalized form.
  void index(const Normalizer* normalizer);

  std::vector<Segment> find_raw(std::string_view text) const { return find(text, raw_); }
  std::vector<Segment> find_normalized(std::string_view text) const {
    return find(text, normalized_);
  }

  bool is_special(int32_t id) const;
  const AddedToken* by_id(int32_t id) const;
  const AddedToken* by_content(std::string_view content) const;
  int32_t end_id() const { return end_id_; }  // largest id + 1

 private:
  std::vector<Segment> find(std::string_view text, const PieceTrie& trie) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<int32_t, size_t> index_of_id_;
  std::unordered_map<std::string, size_t> index_of_content_;
  PieceTrie raw_, normalized_;  // values are indices into tokens_
  int32_t end_id_ = 0;
};

// One entry of "added_tokens" in a tokenizer.json, or of "added_tokens_decoder" with its id from
// outside.
AddedToken read_added_token(const Node& node, int32_t id);

}  // namespace snug::tokenizer
