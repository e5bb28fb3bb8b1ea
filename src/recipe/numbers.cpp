// SPDX-License-Identifier: Apache-2.0
#include "recipe/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace snug::recipe {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Drops the sign "+" and underscores between digits; empty text when an underscore stands
// elsewhere.
std::string without_underscores(std::string_view text) {
  std::string out;
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const bool between =
        i > 0 && i + 1 < text.size() && is_digit(text[i - 1]) && is_digit(text[i + 1]);
    if (!between) return {};
  }
  return out;
}

// YAML 1.1 reads "010" as eight, which is rarely meant.
bool has_leading_zero(std::string_view digits) {
  if (digits.starts_with('-')) digits.remove_prefix(1);
  return digits.size() > 1 && digits[0] == '0' && is_digit(digits[1]);
}

template <class T>
std::optional<T> parse_whole(std::string_view text, double limit) {
  const std::string plain = without_underscores(text);
  if (plain.empty() || has_leading_zero(plain)) return std::nullopt;
  T value{};
  const char* end = plain.data() + plain.size();
  const auto [stop, error] = std::from_chars(plain.data(), end, value);
  if (error == std::errc() && stop == end) return value;
  if (plain.find_first_of("eE") == std::string::npos) return std::nullopt;
  const std::optional<double> real = parse_float(text);
  if (!real || std::abs(*real) > limit || *real != std::floor(*real)) return std::nullopt;
  if (*real < 0 && !std::is_signed_v<T>) return std::nullopt;
  return static_cast<T>(*real);
}

}  // namespace

// Up to 2^53 every whole double is exact.
constexpr double kExactWhole = 9007199254740992.0;

std::optional<int64_t> parse_int(std::string_view text) {
  return parse_whole<int64_t>(text, kExactWhole);
}

std::optional<uint64_t> parse_uint(std::string_view text) {
  return parse_whole<uint64_t>(text, kExactWhole);
}

std::optional<double> parse_float(std::string_view text) {
  const std::string plain = without_underscores(text);
  if (plain.empty() || has_leading_zero(plain)) return std::nullopt;
  double value = 0;
  const char* end = plain.data() + plain.size();
  const auto [stop, error] = std::from_chars(plain.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<Price> parse_price(std::string_view text) {
  const size_t space = text.find(' ');
  const auto per_hour = parse_float(text.substr(0, space));
  if (!per_hour || *per_hour <= 0) return std::nullopt;
  if (space == std::string_view::npos) return Price{*per_hour, ""};
  const std::string_view currency = text.substr(space + 1);
  const auto is_of_word = [](unsigned char c) { return c > ' ' && !(c >= '0' && c <= '9'); };
  if (currency.empty() || !std::ranges::all_of(currency, is_of_word)) return std::nullopt;
  return Price{*per_hour, std::string(currency)};
}

std::string money_text(double amount, const std::string& currency) {
  const std::string sum = amount >= 0.0995 ? fmt::format("{:.2f}", amount)
                          : amount > 0     ? fmt::format("{:.2g}", amount)
                                           : "0";
  return currency.empty() ? sum : sum + " " + currency;
}

std::optional<bool> parse_bool(std::string_view text) {
  static constexpr std::array<std::string_view, 9> kTrue = {"true", "True", "TRUE", "yes", "Yes",
                                                            "YES",  "on",   "On",   "ON"};
  static constexpr std::array<std::string_view, 9> kFalse = {"false", "False", "FALSE", "no", "No",
                                                             "NO",    "off",   "Off",   "OFF"};
  for (const std::string_view word : kTrue)
    if (text == word) return true;
  for (const std::string_view word : kFalse)
    if (text == word) return false;
  return std::nullopt;
}

bool is_null_word(std::string_view text) {
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
}

std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  const size_t exponent = text.find('e');
  if (exponent == std::string::npos) {
    if (text.find('.') == std::string::npos) text += ".0";
  } else if (text.find('.') == std::string::npos) {
    text.insert(exponent, ".0");
  }
  return text;
}

}  // namespace snug::recipe
