// SPDX-License-Identifier: Apache-2.0
#include "recipe/numbers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace snug::recipe {
namespace {

TEST(Numbers, IntsAsPeopleWriteThem) {
  EXPECT_EQ(parse_int("12"), 12);
  EXPECT_EQ(parse_int("+12"), 12);
  EXPECT_EQ(parse_int("-100"), -100);
  EXPECT_EQ(parse_int("10_000_000"), 10'000'000);
  EXPECT_EQ(parse_int("1e6"), 1'000'000);
  EXPECT_EQ(parse_int("0"), 0);
  EXPECT_EQ(parse_int("9223372036854775807"), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(parse_uint("18446744073709551615"), std::numeric_limits<uint64_t>::max());
}

TEST(Numbers, IntsThatAreNone) {
  for (const char* text : {"",     " ",    "1.5", "1e-2", "1e30", "9223372036854775808",
                           "010",  "0x10", "_1",  "1_",   "1__0", "1 2",
                           "five", "nan",  "inf", "-",    "+",    "+-3",
                           "--3",  "1e",   "true"})
    EXPECT_FALSE(parse_int(text)) << text;
  EXPECT_FALSE(parse_uint("-1"));
  EXPECT_FALSE(parse_uint("-1e3"));
}

TEST(Numbers, PricesWithOrWithoutACurrency) {
  const auto read = [](const char* text) {
    const auto price = parse_price(text);
    return price ? fmt::format("{}|{}", price->per_hour, price->currency) : "none";
  };
  EXPECT_EQ(read("2.49"), "2.49|");
  EXPECT_EQ(read("2 USD"), "2|USD");
  EXPECT_EQ(read("0.5 €"), "0.5|€");
  for (const char* text :
       {"", "0", "-1", "free", "USD 2", "2USD", "2 ", "2  USD", "2 USD 3", "2,5", "inf", "1 2"})
    EXPECT_EQ(read(text), "none") << text;
  EXPECT_DOUBLE_EQ((Price{3, "USD"}).of(1800, 4), 6) << "four devices for half an hour";
  EXPECT_EQ(money_text(1234.5, "USD"), "1234.50 USD");
  EXPECT_EQ(money_text(0.0996, ""), "0.10");
  EXPECT_EQ(money_text(0.0123456, "€"), "0.012 €");
}

TEST(Numbers, FloatsAsYamlAndPythonWriteThem) {
  EXPECT_EQ(parse_float("2e-5"), 2e-5);
  EXPECT_EQ(parse_float("6.0e-05"), 6e-5);
  EXPECT_EQ(parse_float(".5"), 0.5);
  EXPECT_EQ(parse_float("5."), 5.0);
  EXPECT_EQ(parse_float("+1.5"), 1.5);
  EXPECT_EQ(parse_float("1_000.5"), 1000.5);
  EXPECT_EQ(parse_float("1E+3"), 1000.0);
  for (const char* text :
       {"", "nan", ".nan", "inf", "-inf", ".inf", "1e999", "0x1p3", "1,5", "1.5.2", "e5"})
    EXPECT_FALSE(parse_float(text)) << text;
}

TEST(Numbers, BoolsAndNulls) {
  for (const char* text : {"true", "True", "TRUE", "yes", "on"})
    EXPECT_EQ(parse_bool(text), true) << text;
  for (const char* text : {"false", "False", "no", "off"})
    EXPECT_EQ(parse_bool(text), false) << text;
  for (const char* text : {"", "1", "0", "tRUE", "y", "truee"})
    EXPECT_FALSE(parse_bool(text)) << text;
  for (const char* text : {"", "~", "null", "Null", "NULL"})
    EXPECT_TRUE(is_null_word(text)) << text;
  EXPECT_FALSE(is_null_word("none"));
}

TEST(Numbers, FloatTextReadsBackToTheSameBits) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bits = random();
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    const std::string text = float_text(value);
    EXPECT_EQ(parse_float(text), value) << text;
    EXPECT_NE(text.find('.'), std::string::npos) << text << " would be no float for YAML 1.1";
  }
  EXPECT_EQ(float_text(2e-5), "2.0e-05");
  EXPECT_EQ(float_text(1), "1.0");
}

}  // namespace
}  // namespace snug::recipe
