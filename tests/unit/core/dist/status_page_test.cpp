// What can be read of a rank from outside, also when it is no more.
// SPDX-License-Identifier: Apache-2.0
#include "core/dist/status_page.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "base/error.h"

namespace snug::dist {
namespace {

namespace fs = std::filesystem;

class StatusPageTest : public testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }
  const fs::path folder_ = fs::temp_directory_path() / fmt::format("snug-status-{}", ::getpid());
};

TEST_F(StatusPageTest, SaysWhatWasWritten) {
  StatusPage page(folder_, 3, 8);
  page.set_state(RankState::Running);
  page.set_activity("step 12");
  page.collective_started("layers.3", "all-gather of group shard (#7)");
  const auto status = read_status(folder_, 3);
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->rank, 3);
  EXPECT_EQ(status->size, 8);
  EXPECT_EQ(status->pid, ::getpid());
  EXPECT_EQ(status->started, 1);
  EXPECT_EQ(status->finished, 0);
  EXPECT_FALSE(is_gone(*status));
  const std::string text = describe(*status);
  for (const char* part :
       {"rank 3", "all-gather of group shard (#7)", "layers.3", "step 12", "0 s ago"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  page.collective_finished();
  EXPECT_NE(describe(*read_status(folder_, 3)).find("computing"), std::string::npos);
  page.set_failure("the disk is full");
  EXPECT_NE(describe(*read_status(folder_, 3)).find("failed: the disk is full"), std::string::npos);
}

TEST_F(StatusPageTest, LongTextsAreCutAndStayWithinThePage) {
  StatusPage page(folder_, 0, 1);
  page.set_activity(std::string(9000, 'a'));
  page.set_failure(std::string(9000, 'f'));
  const auto status = read_status(folder_, 0);
  EXPECT_LT(status->activity.size(), 1000U);
  EXPECT_LT(status->failure.size(), 4096U);
  EXPECT_EQ(fs::file_size(status_file(folder_, 0)), 4096U);
}

TEST_F(StatusPageTest, NoPageIsNoStatus) {
  EXPECT_FALSE(read_status(folder_, 0).has_value());
  fs::create_directories(folder_);
  std::ofstream(status_file(folder_, 0)) << "short";
  EXPECT_FALSE(read_status(folder_, 0).has_value());
  std::ofstream(status_file(folder_, 1)) << std::string(4096, 'x');
  EXPECT_FALSE(read_status(folder_, 1).has_value());
}

TEST_F(StatusPageTest, WithoutAFolderThereIsNoFile) {
  StatusPage page({}, 0, 1);
  page.set_activity("step 1");
}

TEST_F(StatusPageTest, AProcessThatIsNoMoreIsGone) {
  const pid_t child = ::fork();
  if (child == 0) {
    new StatusPage(folder_, 1, 2);
    ::_exit(0);
  }
  int exit_status = 0;
  ::waitpid(child, &exit_status, 0);
  const auto status = read_status(folder_, 1);
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->pid, child);
  EXPECT_TRUE(is_gone(*status));
}

// A reader never sees a half-written page: unit and collective belong together.
TEST_F(StatusPageTest, ReadersSeeWholePages) {
  StatusPage page(folder_, 0, 1);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int i = 0; !stop; ++i) {
      const std::string text(static_cast<size_t>(1 + i % 200), static_cast<char>('a' + i % 26));
      page.collective_started(text, text);
      std::this_thread::sleep_for(std::chrono::microseconds(2));
    }
  });
  for (int i = 0; i < 2000; ++i) {
    const auto status = read_status(folder_, 0);
    ASSERT_TRUE(status.has_value());
    ASSERT_EQ(status->unit, status->collective);
  }
  stop = true;
  writer.join();
}

TEST_F(StatusPageTest, AFolderThatCannotBeIsTheUsers) {
  EXPECT_THROW(StatusPage("/proc/no-such-folder", 0, 1), UserError);
}

}  // namespace
}  // namespace snug::dist
