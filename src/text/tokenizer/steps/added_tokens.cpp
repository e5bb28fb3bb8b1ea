// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer/steps/added_tokens.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/tokenizer/unicode.h"

namespace snug::tokenizer {
namespace {

// Bounds the work per position of a text.
constexpr size_t kMaxContentBytes = 4096;

bool starts_with_word(std::string_view text) {
  size_t offset = 0;
  return !text.empty() && is_word_char(next_code_point(text, offset));
}

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  size_t offset = previous_offset(text, text.size());
  return is_word_char(next_code_point(text, offset));
}

size_t trailing_space_begin(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0) {
    const size_t previous = previous_offset(text, begin);
    size_t offset = previous;
    if (!is_white_space(next_code_point(text, offset))) break;
    begin = previous;
  }
  return begin;
}

size_t leading_space_end(std::string_view text) {
  size_t end = 0;
  for (size_t offset = 0; offset < text.size();) {
    if (!is_white_space(next_code_point(text, offset))) break;
    end = offset;
  }
  return end;
}

}  // namespace

void AddedTokens::add(AddedToken token, const Vocabulary& model, const std::string& where) {
  if (token.content.empty()) return;  // as the oracle: an empty token matches nothing
  if (token.content.size() > kMaxContentBytes) {
    throw UserError("{}: an added token has {} bytes; at most {} are allowed", where,
                    token.content.size(), kMaxContentBytes);
  }
  const int32_t known = model.find(token.content);
  if (known >= 0) token.id = known;
  if (token.id < 0 || token.id >= kMaxTokenId) {
    throw UserError("{}: the id {} of '{}' is not between 0 and {}", where, token.id, token.content,
                    kMaxTokenId - 1);
  }
  if (const auto same = index_of_content_.find(token.content); same != index_of_content_.end()) {
    if (tokens_[same->second].id != token.id) {
      throw UserError("{}: the token '{}' has the ids {} and {}", where, token.content,
                      tokens_[same->second].id, token.id);
    }
    tokens_[same->second] = std::move(token);
    return;
  }
  if (index_of_id_.contains(token.id) || (known < 0 && model.has(token.id))) {
    const AddedToken* other = by_id(token.id);
    throw UserError("{}: the id {} belongs to '{}' and to '{}'; every token needs its own", where,
                    token.id, other ? std::string_view(other->content) : model.token(token.id),
                    token.content);
  }
  index_of_id_[token.id] = tokens_.size();
  index_of_content_[token.content] = tokens_.size();
  end_id_ = std::max(end_id_, token.id + 1);
  tokens_.push_back(std::move(token));
}

void AddedTokens::make_special(std::string_view content) {
  tokens_.at(index_of_content_.at(std::string(content))).special = true;
}

void AddedTokens::index(const Normalizer* normalizer) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    AddedToken& token = tokens_[i];
    const bool changes = token.normalized && normalizer;
    token.text = changes ? normalizer->apply(token.content) : token.content;
    auto& trie = token.normalized ? normalized_ : raw_;
    if (!token.text.empty()) trie.add(token.text, static_cast<int32_t>(i));
  }
}

std::vector<Segment> AddedTokens::find(std::string_view text, const PieceTrie& trie) const {
  std::vector<Segment> found;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    size_t length = 0;
    int32_t index = -1;
    if (trie.may_begin_with(text[at])) {
      trie.each_prefix(text.substr(at), [&](size_t matched, int32_t value) {
        length = matched;
        index = value;
      });
    }
    if (index < 0) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + length;
    at = end;
    const AddedToken& token = tokens_[index];
    if (token.single_word &&
        (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) {
      continue;
    }
    if (token.lstrip) begin = std::max(trailing_space_begin(text.substr(0, begin)), done);
    if (token.rstrip) end += leading_space_end(text.substr(end));
    if (done < begin) found.push_back({done, begin, -1});
    found.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) found.push_back({done, text.size(), -1});
  return found;
}

bool AddedTokens::is_special(int32_t id) const {
  const AddedToken* token = by_id(id);
  return token && token->special;
}

const AddedToken* AddedTokens::by_id(int32_t id) const {
  const auto found = index_of_id_.find(id);
  return found == index_of_id_.end() ? nullptr : &tokens_[found->second];
}

const AddedToken* AddedTokens::by_content(std::string_view content) const {
  const auto found = index_of_content_.find(std::string(content));
  return found == index_of_content_.end() ? nullptr : &tokens_[found->second];
}

AddedToken read_added_token(const Node& node, int32_t id) {
  AddedToken token;
  token.content = node["content"].string();
  token.id = id;
  token.single_word = node.boolean_or("single_word", false);
  token.lstrip = node.boolean_or("lstrip", false);
  token.rstrip = node.boolean_or("rstrip", false);
  token.special = node.boolean_or("special", false);
  token.normalized = node.boolean_or("normalized", !token.special);
  return token;
}

}  // namespace snug::tokenizer
