// Start-up times count from the program's first instruction, or from that of the program which
// started it for the same run; installed files are found from where the program is, which here is
// the test.
// SPDX-License-Identifier: Apache-2.0
#include "base/program.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/clock.h"

namespace snug {
namespace {

namespace fs = std::filesystem;

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

fs::path this_program() { return fs::read_symlink("/proc/self/exe"); }

TEST(Installed, PrefixIsAboveTheProgramsFolder) {
  EXPECT_EQ(program_prefix(), this_program().parent_path().parent_path());
}

TEST(Installed, FileIsTakenWhereItIsNamedFirstThenFromThePackage) {
  const fs::path share = program_prefix() / "share/snug";
  const std::string name = "recipes-of-" + std::to_string(::getpid()) + "/a.yaml";
  EXPECT_EQ(shipped_file(name), name) << "there is none anywhere yet";

  fs::create_directories((share / name).parent_path());
  std::ofstream(share / name) << "seed: 1\n";
  EXPECT_EQ(shipped_file(name), share / name);
  EXPECT_EQ(shipped_file(fs::absolute(name)), fs::absolute(name)) << "an absolute path is meant";

  fs::create_directories(fs::path(name).parent_path());
  std::ofstream(name) << "seed: 2\n";
  EXPECT_EQ(shipped_file(name), name);

  fs::remove_all(fs::path(name).parent_path());
  fs::remove_all((share / name).parent_path());
}

}  // namespace
}  // namespace snug
