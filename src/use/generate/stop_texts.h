// Texts that end an answer: what may be the beginning of one is held back until it is known.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

namespace snug::use {

class StopTexts {
 public:
  explicit StopTexts(std::span<const std::string> texts) : texts_(texts.begin(), texts.end()) {
    std::erase(texts_, "");
  }

  // What of the answer so far is known to belong to it and was not returned yet.
  std::string push(const std::string& piece) {
    if (found_) return "";
    held_ += piece;
    size_t end = std::string::npos;
    for (const std::string& text : texts_) end = std::min(end, held_.find(text));
    if (end != std::string::npos) {
      found_ = true;
      return take(end);
    }
    return take(held_.size() - longest_beginning());
  }
  // What was held back, at the end of an answer.
  std::string flush() { return found_ ? "" : take(held_.size()); }
  bool found() const { return found_; }

 private:
  std::string take(size_t count) {
    std::string known = held_.substr(0, count);
    held_.erase(0, count);
    return known;
  }

  // How much of the end of the held text is the beginning of a stop text.
  size_t longest_beginning() const {
    size_t longest = 0;
    for (const std::string& text : texts_)
      for (size_t count = std::min(text.size() - 1, held_.size()); count > longest; --count)
        if (held_.ends_with(std::string_view(text).substr(0, count))) longest = count;
    return longest;
  }

  std::vector<std::string> texts_;
  std::string held_;
  bool found_ = false;
};

}  // namespace snug::use
