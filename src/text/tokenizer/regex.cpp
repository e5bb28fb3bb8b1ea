// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "base/error.h"
#include "text/tokenizer/unicode.h"

namespace snug::tokenizer {
namespace {

constexpr uint32_t kMatchLimit = 5'000'000;
constexpr uint32_t kHeapLimitKiB = 256 * 1024;
constexpr size_t kJitStackBytes = 8u << 20;
constexpr size_t kMaxPatternBytes = 64 * 1024;

// White_Space, for use inside a character class. PCRE2's own \s also takes U+180E, Oniguruma's does
// not.
constexpr std::string_view kSpaceSet =
    "\\x09-\\x0D\\x20\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}"
    "\\x{3000}";
constexpr std::string_view kWordSet = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

std::string library_text(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

// Rewrites the escapes whose meaning differs between the two dialects.
std::string to_pcre2(std::string_view pattern, const std::string& where) {
  std::string out;
  int class_depth = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escape = pattern[++i];
      const bool inside = class_depth > 0;
      if (escape == 's') {
        out.append(inside ? "" : "[").append(kSpaceSet).append(inside ? "" : "]");
      } else if (escape == 'S' && !inside) {
        out.append("[^").append(kSpaceSet).append("]");
      } else if (escape == 'w') {
        out.append(inside ? "" : "[").append(kWordSet).append(inside ? "" : "]");
      } else if (escape == 'W' && !inside) {
        out.append("[^").append(kWordSet).append("]");
      } else if (escape == 'h') {
        out.append(inside ? "0-9a-fA-F" : "[0-9a-fA-F]");
      } else {
        out += '\\';
        out += escape;
      }
      continue;
    }
    if (c == '[' && class_depth > 0 && pattern.substr(i, 2) != "[:") {
      throw UserError(
          "{}: the pattern '{}' has a set inside a set, which is not supported; write the set flat",
          where, pattern);
    }
    if (class_depth > 0 && pattern.substr(i, 2) == "[:") {
      const size_t end = pattern.find(":]", i);
      if (end == std::string_view::npos) {
        throw UserError("{}: the pattern '{}' has '[:' without ':]'", where, pattern);
      }
      out += pattern.substr(i, end + 2 - i);
      i = end + 1;
      continue;
    }
    if (class_depth > 0 && pattern.substr(i, 2) == "&&") {
      throw UserError("{}: the pattern '{}' intersects sets with '&&', which is not supported",
                      where, pattern);
    }
    if (c == '[') {
      ++class_depth;
      out += c;
      if (pattern.substr(i + 1, 1) == "^") out += pattern[++i];
      if (pattern.substr(i + 1, 1) == "]") out.append("\\]"), ++i;  // a leading ] is literal
      continue;
    }
    if (c == ']' && class_depth > 0) --class_depth;
    out += c;
  }
  return out;
}

// One match block and JIT stack per thread, shared by all patterns.
struct MatchSpace {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(64 * 1024, kJitStackBytes, nullptr);
  MatchSpace() {
    SNUG_CHECK(data && context && stack, "no memory for regular expressions");
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKiB);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  MatchSpace(const MatchSpace&) = delete;
  MatchSpace& operator=(const MatchSpace&) = delete;
  ~MatchSpace() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

}  // namespace

struct Regex::Code {
  pcre2_code* compiled = nullptr;
  bool has_jit = false;
  std::string pattern, where;
  ~Code() { pcre2_code_free(compiled); }
};

Regex::Regex(std::string_view pattern, std::string where) : code_(std::make_unique<Code>()) {
  if (pattern.size() > kMaxPatternBytes) {
    throw UserError("{}: a regular expression has {} bytes; at most {} are allowed", where,
                    pattern.size(), kMaxPatternBytes);
  }
  code_->pattern = pattern;
  const std::string translated = to_pcre2(pattern, where);
  code_->where = std::move(where);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Oniguruma's Ruby syntax: ^ and $ match at every line.
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  code_->compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                  translated.size(), options, &error, &offset, nullptr);
  if (!code_->compiled) {
    throw UserError("{}: the pattern '{}' is not a regular expression: {} (at offset {} of '{}')",
                    code_->where, pattern, library_text(error), offset, translated);
  }
  code_->has_jit = pcre2_jit_compile(code_->compiled, PCRE2_JIT_COMPLETE) == 0;
}

Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

std::pair<size_t, size_t> Regex::find(std::string_view text, size_t from) const {
  thread_local MatchSpace space;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  while (from <= text.size()) {
    int found = PCRE2_ERROR_JIT_STACKLIMIT;
    if (code_->has_jit) {
      found = pcre2_jit_match(code_->compiled, subject, text.size(), from, 0, space.data,
                              space.context);
    }
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      found = pcre2_match(code_->compiled, subject, text.size(), from,
                          PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, space.data, space.context);
    }
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      throw UserError("{}: the pattern '{}' gave up on a text of {} bytes: {}", code_->where,
                      code_->pattern, text.size(), library_text(found));
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(space.data);
    if (range[1] > range[0]) return {range[0], range[1]};
    if (range[1] >= text.size()) break;
    from = range[1] + utf8_length(text[range[1]]);
  }
  return {std::string_view::npos, std::string_view::npos};
}

std::string Regex::escape(std::string_view literal) {
  std::string out;
  for (const char c : literal) {
    if (std::string_view("\\^$.[]|()?*+{}-#&~").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace snug::tokenizer
