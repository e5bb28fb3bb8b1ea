// SPDX-License-Identifier: Apache-2.0
#include "lab/run/lab_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "base/error.h"
#include "base/files.h"
#include "support/temp_folder.h"

namespace snug::lab {
namespace {

namespace fs = std::filesystem;

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

// Somebody whom the kernel does not let do everything, for as long as it lives.
class PlainUser {
 public:
  explicit PlainUser(const fs::path& owned) {
    if (::geteuid() != 0) return;
    const uid_t nobody = 65534;
    for (const auto& entry : fs::recursive_directory_iterator(owned)) own(entry.path(), nobody);
    own(owned, nobody);
    was_root_ = ::seteuid(nobody) == 0;
  }
  PlainUser(const PlainUser&) = delete;
  PlainUser& operator=(const PlainUser&) = delete;
  ~PlainUser() {
    if (was_root_ && ::seteuid(0) != 0) std::abort();
  }

 private:
  static void own(const fs::path& path, uid_t user) {
    EXPECT_EQ(::chown(path.c_str(), user, static_cast<gid_t>(-1)), 0) << path;
  }
  bool was_root_ = false;
};

TEST(LabFolder, IsOneLabsAlone) {
  const test::TempFolder at;
  {
    const LabFolder folder(at.path(), "s", Mode::Plan, "snug lab run s");
    EXPECT_NE(error_of([&] {
                LabFolder(at.path(), "s", Mode::Plan, "snug lab run s");
              }).find("is in use: snug lab run s (process "),
              std::string::npos);
  }
  EXPECT_EQ(error_of([&] { LabFolder(at.path(), "s", Mode::Plan, "snug lab run s"); }), "");
}

TEST(LabFolder, OneThatIsRefusedIsLockedNoMore) {
  const test::TempFolder at;
  write_file_atomically(at / "lab.json", lab_json({.suite = "s", .mode = "plan"}));
  EXPECT_NE(
      error_of([&] { LabFolder(at.path(), "t", Mode::Plan, "snug lab run s"); }).find("suite s"),
      std::string::npos);
  write_file_atomically(at / "lab.json", "{");
  EXPECT_NE(
      error_of([&] { LabFolder(at.path(), "s", Mode::Plan, "snug lab run s"); }).find("damaged"),
      std::string::npos);
  fs::remove(at / "lab.json");
  EXPECT_EQ(error_of([&] { LabFolder(at.path(), "t", Mode::Plan, "snug lab run s"); }), "");
}

TEST(LabFolder, ARowBeginsWithAnEmptyFolder) {
  const test::TempFolder at;
  const LabFolder folder(at.path(), "s", Mode::Plan, "snug lab run s");
  fs::create_directories(folder.out_dir("a"));
  write_file_atomically(folder.out_dir("a") / "run.json", "{}");
  folder.clear_row("a");
  EXPECT_TRUE(fs::is_directory(folder.row_folder("a")));
  EXPECT_TRUE(fs::is_empty(folder.row_folder("a")));
}

// What an earlier run left would be read as what this one measured.
TEST(LabFolder, ARowThatCannotBeClearedIsAnError) {
  const test::TempFolder at;
  const LabFolder folder(at.path(), "s", Mode::Plan, "snug lab run s");
  const fs::path kept = folder.out_dir("a");
  fs::create_directories(kept);
  write_file_atomically(kept / "run.json", "{}");
  const PlainUser user(at.path());
  fs::permissions(kept, fs::perms::owner_read | fs::perms::owner_exec);
  const std::string said = error_of([&] { folder.clear_row("a"); });
  EXPECT_NE(said.find(folder.row_folder("a").string()), std::string::npos) << said;
  EXPECT_NE(said.find("Permission denied"), std::string::npos) << said;
  EXPECT_TRUE(fs::exists(kept / "run.json"));
  fs::permissions(kept, fs::perms::owner_all);
  EXPECT_EQ(error_of([&] { folder.clear_row("a"); }), "");
}

}  // namespace
}  // namespace snug::lab
