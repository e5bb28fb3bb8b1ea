// From where start-up times count: the program's first instruction, or that of the one which
// started it for the same run.
// SPDX-License-Identifier: Apache-2.0
#include "base/program_start.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/clock.h"

namespace snug {
namespace {

// Read by this program's own constructors, which run after its first instruction.
const double read_by_a_constructor = seconds_since_program_start();
const double constructed_at = monotonic_seconds();

TEST(ProgramStart, IsBeforeTheProgramsConstructors) {
  EXPECT_GT(read_by_a_constructor, 0);
  EXPECT_LT(read_by_a_constructor, 60) << "the clock's zero was never noted";
  const double since = monotonic_seconds() - constructed_at;
  EXPECT_GE(seconds_since_program_start(), since + read_by_a_constructor);
}

TEST(ProgramStart, IsHandedOnBetweenProcessesOfOneMachine) {
  const std::string here = program_start();
  const std::string boot = here.substr(0, here.find(' '));
  const double began = std::stod(here.substr(here.find(' ')));
  const std::vector<std::string> others = {"",
                                           boot,
                                           boot + " ",
                                           boot + " soon",
                                           boot + " -5",
                                           boot + " 1e400",
                                           "11111111-2222-3333-4444-555555555555 1",
                                           boot + " " + std::to_string(began + 100)};
  for (const std::string& other : others) {
    count_from(other);
    EXPECT_EQ(program_start(), here) << other;
  }
  const double before = seconds_since_program_start();
  count_from(boot + " " + std::to_string(began / 2));
  EXPECT_GE(seconds_since_program_start(), before + began / 2 - 1e-3);
}

}  // namespace
}  // namespace snug
