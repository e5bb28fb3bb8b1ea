// Shared state of a running template: the work limit, since templates are untrusted, and fail(),
// which names the template and the line.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "text/template/value.h"

namespace snug::tokenizer::jinja {

inline constexpr int kMaxDepth = 100;
inline constexpr size_t kMaxTextBytes = size_t{64} << 20;

class Runtime {
 public:
  explicit Runtime(const std::string& where) : where_(where) {}

  void set_line(int line) { line_ = line; }
  int line() const { return line_; }

  // Charges one unit per step, plus the bytes or items that it creates.
  void charge(size_t bytes = 0) {
    work_ += 1 + bytes / 16;
    if (work_ > kMaxWork) fail("the template does too much work; it may have an endless loop");
  }

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw UserError("{}: line {}: {}", where_, line_,
                    fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  static constexpr uint64_t kMaxWork = 10'000'000;
  const std::string& where_;
  int line_ = 1;
  uint64_t work_ = 0;
};

// Named filters (value | name(args)), tests (value is name(args)) and methods (value.name(args)).
// The lookups return null for an unknown name.
using Filter = Value (*)(Runtime&, const Value&, const Arguments&);
using Test = bool (*)(Runtime&, const Value&, const Arguments&);
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);
Filter find_method(const Value& object, std::string_view name);

// value.name and value[key]; Undefined if there is no such thing.
Value get_attribute(Runtime& runtime, const Value& value, std::string_view name);
Value get_item(Runtime& runtime, const Value& value, const Value& key);
Value get_slice(Runtime& runtime, const Value& value, const Value& start, const Value& stop,
                const Value& step);
// The items of a list, the keys of a dict, the characters of a string.
List iterate(Runtime& runtime, const Value& value);
int64_t length_of(Runtime& runtime, const Value& value);
// Python's operators by their sign: + - * / // % ** ~
Value operate(Runtime& runtime, std::string_view sign, const Value& a, const Value& b);
bool contains(Runtime& runtime, const Value& container, const Value& item);

}  // namespace snug::tokenizer::jinja
