// What --sweep is read as. Its table is tested by tests/system/plan_test.cpp.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/command/plan_sweep.h"

namespace snug::plan {
namespace {

using Words = std::vector<std::string>;

TEST(Sweep, ReadsListsRangesAndKeysThatGoTogether) {
  const auto axes =
      read_sweep("train.micro_batch_size+train.global_batch_size=1:6,12  device=l4,h100-80");
  ASSERT_EQ(axes.size(), 2U);
  EXPECT_EQ(axes[0].keys, (Words{"train.micro_batch_size", "train.global_batch_size"}));
  EXPECT_EQ(axes[0].values, (Words{"1", "2", "4", "12"}));
  EXPECT_EQ(axes[0].name(), "micro_batch_size+global_batch_size");
  EXPECT_EQ(axes[1].keys, Words{"device"});
  EXPECT_EQ(axes[1].values, (Words{"l4", "h100-80"}));
  // A colon elsewhere is a part of a value.
  EXPECT_EQ(read_sweep("optimizer_offload=none,disk:/mnt")[0].values, (Words{"none", "disk:/mnt"}));
}

TEST(Sweep, SaysWhatIsWrong) {
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"", "one option or two can run through values, not 0"},
           {"a=1 b=2 c=3", "not 3"},
           {"micro_batch_size", "micro_batch_size is no KEY=VALUE"},
           {"=1,2", "=1,2 is no KEY=VALUE"},
           {"a+=1", "a+=1 is no KEY=VALUE"},
           {"a=1,,2", "a=1,,2 is no KEY=VALUE"},
           {"a=8:2", "8:2 is no range"},
           {"a=0:4", "0:4 is no range"},
           {"a=1:1e300", "1:1e300 is no range"},
           {"sweep=1", "sweep is not an option that can run through values"},
           {"a=1:1e12 b=1:1e12", "1600 combinations; 1024 at most"}}) {
    try {
      read_sweep(text);
      ADD_FAILURE() << text << " is read";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace snug::plan
