// Scalars of YAML 1.1, read and written. Reading is strict: "nan", "1e999", "010" and "0x1F" are
// refused, because a number that is silently read as another one is the worst mistake in a recipe.
// float_text's output reads back to the same bits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace snug::recipe {

// "12", "+12", "-3", "1_000_000", and "1e6", since it is whole.
std::optional<int64_t> parse_int(std::string_view text);
std::optional<uint64_t> parse_uint(std::string_view text);
// "2e-5", ".5", "6.0e-05", "1_000.5"; finite only.
std::optional<double> parse_float(std::string_view text);
// "2.49", "2.49 USD": what an hour of one device costs, in a currency that is only repeated.
struct Price {
  double per_hour = 0;  // 0: not known
  std::string currency;

  double of(double seconds, int64_t devices) const {
    return per_hour * seconds / 3600 * static_cast<double>(devices);
  }
};
std::optional<Price> parse_price(std::string_view text);
// "0.0123 USD"; with as many digits as small sums want.
std::string money_text(double amount, const std::string& currency);

// true/false, yes/no, on/off in YAML's three spellings (true, True, TRUE).
std::optional<bool> parse_bool(std::string_view text);
// null, Null, NULL, ~ and the empty text: "not set".
bool is_null_word(std::string_view text);

// The shortest text that reads back to the same value, with the point that YAML 1.1 requires in a
// float: "2.0e-05".
std::string float_text(double value);

}  // namespace snug::recipe
