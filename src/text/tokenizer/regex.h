// Regular expressions of tokenizer files, run by PCRE2's JIT. The files are written for Oniguruma,
// so patterns are first translated to PCRE2's dialect; patterns that cannot be translated are
// refused. Match limits bound the work, so that a hostile pattern fails instead of hanging.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "text/tokenizer/json_node.h"

namespace snug::tokenizer {

class Regex {
 public:
  // `where` names the file and place for error messages.
  Regex(std::string_view pattern, std::string where);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // First non-empty match that starts at or after `from`, as [begin, end); {npos, npos} if none.
  std::pair<size_t, size_t> find(std::string_view text, size_t from) const;

  static std::string escape(std::string_view literal);

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

// A "pattern" of tokenizer.json: {"String": literal} or {"Regex": expression}.
class TextPattern {
 public:
  explicit TextPattern(const Node& node) : where_(node.where()) {
    if (node.is_string()) {
      literal_ = node.string();
    } else if (const auto literal = node.find("String")) {
      literal_ = literal->string();
    } else {
      regex_.emplace(node["Regex"].string(), node.where());
      return;
    }
    if (literal_.empty()) node.refuse("a pattern that is not empty");
  }

  // First match at or after `from`; {npos, npos} if none.
  std::pair<size_t, size_t> find(std::string_view text, size_t from) const {
    if (regex_) return regex_->find(text, from);
    const size_t begin = text.find(literal_, from);
    if (begin == std::string_view::npos) return {begin, begin};
    return {begin, begin + literal_.size()};
  }

  std::string replace_all(std::string_view text, std::string_view by) const {
    std::string out;
    size_t done = 0;
    for (auto [begin, end] = find(text, 0); begin != std::string_view::npos;
         std::tie(begin, end) = find(text, end)) {
      out += text.substr(done, begin - done);
      out += by;
      done = end;
      if (out.size() > kMostReplaced && out.size() / 8 > text.size())
        throw UserError("{}: replacing makes more than {} MiB of {} bytes", where_,
                        kMostReplaced >> 20, text.size());
    }
    out += text.substr(done);
    return out;
  }

 private:
  static constexpr size_t kMostReplaced = size_t{64} << 20;  // bytes

  std::string where_;  // in tokenizer.json
  std::string literal_;
  std::optional<Regex> regex_;
};

}  // namespace snug::tokenizer
