// SPDX-License-Identifier: Apache-2.0
#include "report/log_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "support/temp_folder.h"

namespace snug::report {
namespace {

TEST(LogFile, KeepsWhatWasSaidBeforeItWasOpened) {
  const test::TempFolder folder;
  LogFile log;
  log.write("early");
  log.write("two\nlines\n");
  EXPECT_FALSE(std::filesystem::exists(folder / "log.txt"));
  log.open(folder / "log.txt", LogStart::Anew);
  EXPECT_EQ(read_file(folder / "log.txt"), "early\ntwo\nlines\n");
  log.write("late");
  EXPECT_EQ(read_file(folder / "log.txt"), "early\ntwo\nlines\nlate\n") << "at once";
}

TEST(LogFile, StartsAnewOrGoesOn) {
  const test::TempFolder folder;
  const auto path = folder / "log.txt";
  std::ofstream(path) << "whole\nhal";
  {
    LogFile log;
    log.open(path, LogStart::Append);
    log.write("more");
    EXPECT_EQ(read_file(path), "whole\nhal\nmore\n") << "a line that was cut is ended";
  }
  LogFile log;
  log.open(path, LogStart::Anew);
  log.write("new");
  EXPECT_EQ(read_file(path), "new\n");
}

TEST(LogFile, EndsWithHowAndWhy) {
  const test::TempFolder folder;
  LogFile log;
  log.open(folder / "log.txt", LogStart::Anew);
  log.write_end("error", "no more");
  const std::string text = read_file(folder / "log.txt");
  EXPECT_TRUE(text.starts_with("snug: no more\n20")) << text;
  EXPECT_TRUE(text.ends_with(" UTC  ended: error\n")) << text;
}

// A limit on the size of files stands in for a full disk: it too cuts a line in its middle.
TEST(LogFile, WritesWhatAFullDiskRefusedOnceThereIsSpace) {
  const test::TempFolder folder;
  const auto path = folder / "log.txt";
  LogFile log;
  log.open(path, LogStart::Anew);
  log.write("first");
  EXPECT_EQ(log.fault(), "");
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{.rlim_cur = 10, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &tight);
  log.write("second");
  log.write("third");
  const std::string fault = log.fault(), cut = read_file(path);
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, ignored);
  EXPECT_EQ(cut, "first\nseco");
  EXPECT_EQ(fault, "File too large");
  log.write("fourth");
  EXPECT_EQ(log.fault(), "");
  EXPECT_EQ(read_file(path), "first\nsecond\nthird\nfourth\n");
}

TEST(LogFile, AFolderThatIsGoneIsNoReasonToThrow) {
  const test::TempFolder folder;
  LogFile log;
  log.open(folder / "gone/log.txt", LogStart::Anew);
  log.write("kept");
  EXPECT_EQ(log.fault(), "No such file or directory");
  std::filesystem::create_directory(folder / "gone");
  log.write("and written");
  EXPECT_EQ(read_file(folder / "gone/log.txt"), "kept\nand written\n");
}

}  // namespace
}  // namespace snug::report
