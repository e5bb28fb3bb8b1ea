// Scalars as YAML 1.1 and people write them, both ways. Reading is strict: "nan", "1e999", "010"
// and "0x1F" are nobody's learning rate, and a number that is quietly read as another one is the
// worst kind of mistake in a recipe. What is written by *_text is read back to the same bits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace snug::recipe {

// "12", "+12", "-3", "1_000_000", also "1e6" where that is whole. Empty when it is not one.
std::optional<int64_t> parse_int(std::string_view text);
std::optional<uint64_t> parse_uint(std::string_view text);
// "2e-5", ".5", "6.0e-05", "1_000.5"; finite only.
std::optional<double> parse_float(std::string_view text);
// true/false, yes/no, on/off in YAML's three spellings (true, True, TRUE).
std::optional<bool> parse_bool(std::string_view text);
// null, Null, NULL, ~ and the empty text: "not set".
bool is_null_word(std::string_view text);

// Shortest text that reads back to the same value, with a point in it where YAML 1.1 wants one to
// see a float: "2.0e-05".
std::string float_text(double value);

}  // namespace snug::recipe
