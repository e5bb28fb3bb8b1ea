// Regular expressions of tokenizer files, run by PCRE2's JIT. The files are written for Oniguruma,
// so patterns are first translated to PCRE2's dialect; patterns that cannot be translated are
// refused. Match limits bound the work, so that a hostile pattern fails instead of hanging.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

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

}  // namespace snug::tokenizer
