// Files that came with the program are found from where it lies; here that program is the test.
// SPDX-License-Identifier: Apache-2.0
#include "base/installed.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace snug {
namespace {

namespace fs = std::filesystem;

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
