// SPDX-License-Identifier: Apache-2.0
#include "plan/command/prices.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace snug::plan {
namespace {

TEST(Prices, OneForAllOrOneForEachDevice) {
  EXPECT_EQ(read_price("", "l4").per_hour, 0);
  EXPECT_EQ(read_price("2.49", "l4").per_hour, 2.49);
  const std::string list = "l4=0.8,H100_80=2.49 USD";
  EXPECT_EQ(read_price(list, "l4").per_hour, 0.8);
  EXPECT_EQ(read_price(list, "l4").currency, "USD");
  EXPECT_EQ(read_price(list, "h100-80").per_hour, 2.49);
  EXPECT_EQ(read_price(list, "a100-80").per_hour, 0) << "not in the list";
  EXPECT_TRUE(is_price_list(list));
  EXPECT_FALSE(is_price_list("2.49 USD"));
}

TEST(Prices, SayWhatIsWrong) {
  for (const auto& [text, part] : {std::pair{"cheap", "--price_per_hour cheap: give a number"},
                                   {"l4=0", "--price_per_hour l4=0: give a number"},
                                   {"l4=1,2", "one for each device"},
                                   {"l5=1", "l5"}}) {
    try {
      read_price(text, "l4");
      ADD_FAILURE() << text << " is read";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace snug::plan
