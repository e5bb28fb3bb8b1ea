// Text of a token may depend on the tokens before it (a space that is stripped at the start) and
// may end inside a character. So a few emitted ids are kept as context, and text that ends in
// U+FFFD waits.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tokenizer/tokenizer.h"

namespace snug::tokenizer {
namespace {

// A character has at most four bytes, each a token; more waiting ids will not complete one.
constexpr size_t kMaxWaiting = 8;

}  // namespace

std::string StreamingDecoder::push(int32_t id) {
  window_.push_back(id);
  const std::string text = tokenizer_.decode(window_);
  // Ids without a text, however many, leave the context alone: without words in it the next one
  // would look like the first.
  if (!emitted_.empty() && text == emitted_ && tokenizer_.decode({&id, 1}).empty()) {
    window_.pop_back();
    return "";
  }
  const bool waits = window_.size() - num_context_ < kMaxWaiting;
  if (waits && (text.ends_with("\xEF\xBF\xBD") || text.size() <= emitted_.size())) return "";
  return flush();
}

std::string StreamingDecoder::flush() {
  const std::string text = tokenizer_.decode(window_);
  size_t begin = std::min(emitted_.size(), text.size());
  // Only after bytes that were given up on: what they have become meanwhile is not shown a second
  // time.
  while (begin < text.size() && (text[begin] & 0xC0) == 0x80) ++begin;
  std::string fresh = text.substr(begin);
  window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(num_context_));
  num_context_ = window_.size();
  emitted_ = tokenizer_.decode(window_);
  return fresh;
}

}  // namespace snug::tokenizer
