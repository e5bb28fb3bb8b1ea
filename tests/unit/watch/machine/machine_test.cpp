// Compares facts about the machine that the test runs on with other ways of asking for them.
// SPDX-License-Identifier: Apache-2.0
#include "watch/machine/machine.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "support/temp_folder.h"
#include "watch/machine/kernel_files.h"

namespace snug::machine {
namespace {

TEST(KernelFiles, NumbersAndWords) {
  const std::string text =
      "MemTotal:       24576 kB\nMemTotalX: 7\nmodel name\t: A  B\noom_kill 4\n";
  EXPECT_EQ(number_behind(text, "MemTotal:"), 24576);
  EXPECT_EQ(number_behind(text, "oom_kill"), 4);
  EXPECT_FALSE(number_behind(text, "oom").has_value()) << "whole names only";
  EXPECT_FALSE(number_behind("limit max\n", "limit").has_value());
  EXPECT_EQ(words_behind(text, "model name"), "A  B");
  EXPECT_EQ(words_behind(text, "model"), "");
}

TEST(Machine, MemoryIsThatOfTheSystem) {
  const Memory m = memory();
  EXPECT_EQ(m.total / ::getpagesize(), ::sysconf(_SC_PHYS_PAGES));
  EXPECT_GT(m.available, 0);
  EXPECT_LE(m.available, m.total);
}

TEST(Machine, PageLockedLimit) {
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &before), 0);
  struct rlimit lower = before;
  lower.rlim_cur = 65536;
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &lower), 0);
  EXPECT_EQ(memory().page_locked_limit, 65536);
  ::setrlimit(RLIMIT_MEMLOCK, &before);
}

TEST(Machine, ProcessorHasCoresAndAName) {
  const Processor p = processor();
  EXPECT_FALSE(p.name.empty());
  EXPECT_GE(p.cores, 1);
  EXPECT_LE(p.cores, ::sysconf(_SC_NPROCESSORS_CONF));
}

// A folder that is yet to be made has the same disk, too.
TEST(Machine, DiskIsThatOfTheNearestFolder) {
  const test::TempFolder folder;
  struct statvfs room {};
  ASSERT_EQ(::statvfs(folder.path().c_str(), &room), 0);
  const Disk there = disk(folder.path()), below = disk(folder / "a/b/c");
  EXPECT_EQ(there.size, static_cast<int64_t>(room.f_blocks * room.f_frsize));
  EXPECT_EQ(below.size, there.size);
  EXPECT_EQ(below.kind, there.kind);
}

TEST(Machine, UseOfThisProcess) {
  const auto begin = std::chrono::steady_clock::now();
  const auto use = process_use(::getpid());
  ASSERT_TRUE(use.has_value());
  // Something to do, so that the clock of the processor goes on by a few of its ticks.
  volatile double sum = 0;
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(200)) sum = sum + 1;
  const auto later = process_use(::getpid());
  ASSERT_TRUE(later.has_value());
  EXPECT_GE(later->processor_seconds, use->processor_seconds);
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  EXPECT_LE(use->resident, int64_t{1024} * usage.ru_maxrss + (1 << 20));
  EXPECT_GT(use->resident, 1 << 19);
  EXPECT_EQ(use->threads, 1);
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_NEAR(use->started, now, 600);
  EXPECT_EQ(use->started, later->started);
}

TEST(Machine, AProcessThatIsGoneHasNone) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(process_use(child).has_value()) << "ended, and not asked how yet";
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(process_use(child).has_value());
  EXPECT_FALSE(process_use(0).has_value());
  EXPECT_FALSE(process_use(-1).has_value());
}

TEST(Machine, DescribesItselfInALine) {
  const std::string text = describe();
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_NE(text.find(processor().name), std::string::npos);
}

}  // namespace
}  // namespace snug::machine
