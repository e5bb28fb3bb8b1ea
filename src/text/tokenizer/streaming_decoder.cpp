// Text of a token may depend on the tokens before it (a space that is stripped at the start) and
// may end inside a character. So a few emitted ids are kept as context, and text that ends in
// U+FFFD waits.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "text/tokenizer/tokenizer.h"

namespace snug::tokenizer {
namespace {

// A character has at most four bytes, so more waiting ids cannot complete one.
constexpr size_t kMaxWaiting = 8;

}  // namespace

std::string StreamingDecoder::push(int32_t id) {
  window_.push_back(id);
  const std::string text = tokenizer_.decode(window_);
  // Ids without text do not enter the context: without words in it the next word would be decoded
  // like the first.
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
  // Only after incomplete bytes that were emitted as they were: do not emit the completed character
  // too.
  while (begin < text.size() && (text[begin] & 0xC0) == 0x80) ++begin;
  std::string fresh = text.substr(begin);
  window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(num_context_));
  num_context_ = window_.size();
  emitted_ = tokenizer_.decode(window_);
  return fresh;
}

}  // namespace snug::tokenizer
