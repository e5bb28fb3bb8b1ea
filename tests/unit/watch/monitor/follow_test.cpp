// SPDX-License-Identifier: Apache-2.0
#include "watch/monitor/follow.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/program.h"
#include "support/temp_folder.h"

namespace snug::monitor {
namespace {

namespace fs = std::filesystem;

// The number of a process that has just ended.
pid_t dead_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

class FollowTest : public testing::Test {
 protected:
  report::LiveState state(int rank = 0, int size = 1) const {
    report::LiveState live;
    live.state = "training";
    live.pid = ::getpid();
    live.rank = rank;
    live.world_size = size;
    live.host = host_name();
    live.time = live.started = unix_seconds();
    live.step = 1;
    return live;
  }
  void put(const fs::path& run, const report::LiveState& live) const {
    report::LiveWriter(report::live_file(run, live.rank)).write(live, true);
  }
  static void age(const fs::path& file, int seconds) {
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::seconds(seconds));
  }
  void write(const fs::path& file, const nlohmann::json& json) const {
    fs::create_directories(file.parent_path());
    std::ofstream(file) << json.dump();
  }

  test::TempFolder folder_;
};

TEST_F(FollowTest, ARunThatIsAlive) {
  put(folder_ / "run", state());
  Follow follow(folder_ / "run");
  const Look look = follow.look();
  ASSERT_EQ(look.ranks.size(), 1U);
  EXPECT_TRUE(look.ranks[0].is_here);
  EXPECT_FALSE(look.ranks[0].is_gone);
  ASSERT_TRUE(look.ranks[0].use.has_value());
  EXPECT_GT(look.ranks[0].use->resident, 0);
  EXPECT_TRUE(look.ranks[0].processor_percent.has_value());
  EXPECT_GE(look.cores, 1);
  EXPECT_FALSE(is_over(look));
}

TEST_F(FollowTest, AProcessThatIsGone) {
  report::LiveState live = state();
  live.pid = dead_process();
  put(folder_ / "run", live);
  const Look look = Follow(folder_ / "run").look();
  ASSERT_EQ(look.ranks.size(), 1U);
  EXPECT_TRUE(look.ranks[0].is_gone);
  EXPECT_TRUE(is_over(look));
  live.state = "ended";
  live.outcome = "ok";
  put(folder_ / "run", live);
  const Look ended = Follow(folder_ / "run").look();
  EXPECT_FALSE(ended.ranks.at(0).is_gone);
  EXPECT_EQ(state_word(ended), "ok");
}

// This test's own number, taken over from a process that was there long before.
TEST_F(FollowTest, AnotherProcessWithTheSameNumberIsNotTheRun) {
  report::LiveState live = state();
  live.time = live.started -= 1e6;
  put(folder_ / "run", live);
  EXPECT_TRUE(Follow(folder_ / "run").look().ranks.at(0).is_gone);
}

// On a busy machine minutes pass between a launcher's start and that of its ranks.
TEST_F(FollowTest, ARankThatBeganLongAfterItsRunIsThere) {
  report::LiveState live = state();
  live.started -= 1e6;
  put(folder_ / "run", live);
  EXPECT_FALSE(Follow(folder_ / "run").look().ranks.at(0).is_gone);
}

TEST_F(FollowTest, AProcessElsewhereIsNotAskedFor) {
  report::LiveState live = state();
  live.host = "some-other-host";
  live.pid = dead_process();
  live.time -= 30;
  put(folder_ / "run", live);
  const Look look = Follow(folder_ / "run").look();
  EXPECT_FALSE(look.ranks.at(0).is_here);
  EXPECT_FALSE(look.ranks.at(0).is_gone);
  EXPECT_NEAR(look.ranks.at(0).silent_seconds, 30, 5);
}

TEST_F(FollowTest, AllProcessesButThoseOfAnEarlierRun) {
  const fs::path run = folder_ / "run";
  put(run, state(0, 3));
  put(run, state(1, 3));
  report::LiveState earlier = state(2, 4);
  earlier.started -= 3600;
  put(run, earlier);
  put(run, state(3, 4));  // beyond this run's
  const Look look = Follow(run).look();
  ASSERT_EQ(look.ranks.size(), 2U);
  EXPECT_EQ(look.ranks[1].live.rank, 1);
}

TEST_F(FollowTest, TheNewestRunIsTheDefault) {
  put(folder_ / "out/a/first", state());
  put(folder_ / "out/second", state());
  age(report::live_file(folder_ / "out/second", 0), 100);
  EXPECT_EQ(Follow("", folder_ / "out").look().run_folder, folder_ / "out/a/first");
  // And in a folder of runs that is named.
  EXPECT_EQ(Follow(folder_ / "out").look().run_folder, folder_ / "out/a/first");
}

// A run that is started anew takes away what the one before left, at any moment. Now and then the
// other thread stands still for two looks, so that whole states are seen as well.
TEST_F(FollowTest, WhatComesAndGoesWhileItLooksIsNoError) {
  const fs::path run = folder_ / "out/run";
  put(run, state(0, 3));
  Follow follow(run);
  std::atomic<bool> done = false;
  std::atomic<int> looks = 0;
  std::thread other([&] {
    for (int round = 0; !done; ++round) {
      const auto stand_still = [&] {
        const int before = looks;
        while (round % 10 == 0 && !done && looks < before + 2) std::this_thread::yield();
      };
      for (int rank = 0; rank < 3; ++rank) put(run, state(rank, 3));
      stand_still();
      std::error_code ignored;
      fs::remove_all(run / "live", ignored);
      stand_still();
    }
  });
  size_t most = 0, fewest = 3;
  for (; looks < 500 || (looks < 100000 && (most < 3 || fewest > 0)); ++looks) {
    Look look;
    EXPECT_NO_THROW(look = follow.look());
    if (looks % 10 == 0) {
      EXPECT_NO_THROW(Follow(folder_.path()).look());
    }
    most = std::max(most, look.ranks.size());
    fewest = std::min(fewest, look.ranks.size());
  }
  done = true;
  other.join();
  EXPECT_EQ(most, 3U) << "it saw all of them";
  EXPECT_EQ(fewest, 0U) << "and none";
}

// The folders that are searched may vanish just as well.
TEST_F(FollowTest, FoldersThatVanishDoNotHideTheOthers) {
  put(folder_ / "out/z/run", state());
  std::atomic<bool> done = false;
  std::thread other([&] {
    while (!done) {
      for (const char* name : {"a/b", "m/n", "y/z"}) fs::create_directories(folder_ / "out" / name);
      std::error_code ignored;
      for (const char* name : {"a", "m", "y"}) fs::remove_all(folder_ / "out" / name, ignored);
    }
  });
  for (int i = 0; i < 500; ++i)
    EXPECT_EQ(Follow("", folder_ / "out").look().run_folder, folder_ / "out/z/run");
  done = true;
  other.join();
}

TEST_F(FollowTest, ADamagedProcessAmongOthersIsPassedOver) {
  put(folder_ / "run", state(0, 3));
  put(folder_ / "run", state(2, 3));
  write(report::live_file(folder_ / "run", 1), {{"schema", 1}});
  const Look look = Follow(folder_ / "run").look();
  ASSERT_EQ(look.ranks.size(), 2U);
  EXPECT_EQ(look.ranks[1].live.rank, 2);
}

TEST_F(FollowTest, ARunThatBeginsBelowTheFolderIsFound) {
  fs::create_directories(folder_ / "new");
  Follow follow(folder_ / "new");
  EXPECT_TRUE(follow.look().ranks.empty());
  put(folder_ / "new/full", state());
  EXPECT_EQ(follow.look().run_folder, folder_ / "new/full");
}

TEST_F(FollowTest, WaitsInAFolderThatIsThere) {
  fs::create_directories(folder_ / "new");
  Follow follow(folder_ / "new");
  EXPECT_TRUE(follow.look().ranks.empty());
  put(folder_ / "new", state());
  EXPECT_EQ(follow.look().ranks.size(), 1U);
}

TEST_F(FollowTest, NothingToFollowIsAnErrorThatSaysWhatToDo) {
  const auto message = [](const auto& make) -> std::string {
    try {
      make();
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(message([&] { Follow("", folder_ / "out"); }).find("start one with"),
            std::string::npos);
  EXPECT_NE(message([&] { Follow(folder_ / "none"); }).find("no such folder"), std::string::npos);
  write(folder_ / "old/run.json", {});
  EXPECT_NE(message([&] { Follow(folder_ / "old"); }).find("report.html"), std::string::npos);
}

TEST_F(FollowTest, DamagedStatusIsAnErrorThatNamesIt) {
  write(report::live_file(folder_ / "run", 0), {1, 2});
  Follow follow(folder_ / "run");
  EXPECT_THROW(follow.look(), UserError);
}

class FollowSuite : public FollowTest {
 protected:
  void SetUp() override {
    write(lab_ / "lab.json", {{"suite", "litgpt"}, {"mode", "scaled"}, {"rows", {"a", "b", "c"}}});
    write(lab_ / "rows/a/row.json", {{"id", "a"}, {"outcome", "ok"}});
    report::LiveState done = state();
    done.state = "ended";
    done.outcome = "ok";
    put(lab_ / "rows/a/run", done);
    age(report::live_file(lab_ / "rows/a/run", 0), 50);
    age(lab_ / "rows/a/row.json", 49);
  }
  const fs::path lab_ = folder_ / "out/lab/litgpt";
};

TEST_F(FollowSuite, TheRowThatRunsIsFollowed) {
  put(lab_ / "rows/b/run", state());
  for (Follow follow : {Follow(lab_), Follow("", folder_ / "out")}) {
    const Look look = follow.look();
    ASSERT_TRUE(look.suite.has_value());
    EXPECT_EQ(look.suite->name, "litgpt");
    EXPECT_EQ(look.suite->mode, "scaled");
    EXPECT_EQ(look.suite->done, 1);
    EXPECT_EQ(look.suite->total, 3);
    EXPECT_EQ(look.suite->current, "b");
    ASSERT_EQ(look.suite->newest.size(), 1U);
    EXPECT_EQ(look.suite->newest[0].second, "ok");
    EXPECT_EQ(look.run_folder, lab_ / "rows/b/run");
    EXPECT_EQ(state_word(look), "training");
    EXPECT_FALSE(is_over(look));
  }
}

// An earlier lab's, which had other words or was of another version.
TEST_F(FollowSuite, ResultsThatWillBeMadeAgainAreNotDone) {
  const auto done = [&](const std::string& made_from) {
    write(lab_ / "lab.json", {{"suite", "litgpt"},
                              {"mode", "scaled"},
                              {"rows", {"a", "b", "c"}},
                              {"made_from", {{"a", "these words"}}}});
    write(lab_ / "rows/a/row.json", {{"outcome", "ok"}, {"made_from", made_from}});
    return Follow(lab_).look().suite.value().done;
  };
  EXPECT_EQ(done("these words"), 1);
  EXPECT_EQ(done("other words"), 0);
}

TEST_F(FollowSuite, ARowsOwnFolderIsThatRun) {
  const Look look = Follow(lab_ / "rows/a/run").look();
  EXPECT_FALSE(look.suite.has_value());
  EXPECT_EQ(state_word(look), "ok");
}

// As a lab takes it for as long as it lives.
class LabLock {
 public:
  explicit LabLock(const fs::path& lab)
      : file_(::open((lab / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)),
        is_mine_(::flock(file_, LOCK_EX | LOCK_NB) == 0) {}
  ~LabLock() { ::close(file_); }
  LabLock(const LabLock&) = delete;
  LabLock& operator=(const LabLock&) = delete;
  bool is_mine() const { return is_mine_; }

 private:
  int file_;
  bool is_mine_;
};

TEST_F(FollowSuite, BetweenTwoRowsItGoesOnForAsLongAsTheLabLives) {
  {
    const LabLock lab(lab_);
    ASSERT_TRUE(lab.is_mine());
    age(report::live_file(lab_ / "rows/a/run", 0), 1000);  // a row may take long to begin
    const Look look = Follow(lab_).look();
    EXPECT_EQ(look.suite->current, "");
    EXPECT_FALSE(is_over(look));
  }
  const Look after = Follow(lab_).look();
  EXPECT_TRUE(is_over(after)) << "it ended, or was killed";
  EXPECT_NE(ending_sentence(after).find("stopped: 1 of 3"), std::string::npos);
  EXPECT_TRUE(LabLock(lab_).is_mine()) << "who watches stands in no lab's way";
}

TEST_F(FollowSuite, TheRowOfALabThatWasKilledIsNamed) {
  report::LiveState killed = state();
  killed.pid = dead_process();
  put(lab_ / "rows/b/run", killed);
  const Look look = Follow(lab_).look();
  EXPECT_TRUE(is_over(look));
  EXPECT_NE(ending_sentence(look).find("stopped in b: 1 of 3"), std::string::npos)
      << ending_sentence(look);
}

TEST_F(FollowSuite, ALabElsewhereIsKnownByItsSilenceAlone) {
  report::LiveState done = report::read_live_json(report::live_file(lab_ / "rows/a/run", 0));
  done.host = "some-other-host";
  put(lab_ / "rows/a/run", done);
  EXPECT_FALSE(is_over(Follow(lab_).look()));
}

TEST_F(FollowSuite, OverWhenAllRowsAreDone) {
  for (const char* id : {"b", "c", "a-try-beside"})
    write(lab_ / "rows" / id / "row.json", {{"id", id}, {"outcome", "oom"}});
  {
    const LabLock lab(lab_);
    EXPECT_FALSE(is_over(Follow(lab_).look())) << "a search goes on, or reports are written";
  }
  const Look look = Follow(lab_).look();
  EXPECT_EQ(look.suite->done, 3) << "tries of a search are not among those asked for";
  EXPECT_TRUE(is_over(look));
}

TEST_F(FollowSuite, OverWhenNothingHappensAnyMore) {
  report::LiveState done = report::read_live_json(report::live_file(lab_ / "rows/a/run", 0));
  done.host = "some-other-host";
  put(lab_ / "rows/a/run", done);
  age(lab_ / "lab.json", 1000);
  age(lab_ / "rows/a/row.json", 900);
  age(report::live_file(lab_ / "rows/a/run", 0), 950);
  age(lab_ / "rows/a", 900);
  const Look look = Follow(lab_).look();
  EXPECT_TRUE(is_over(look));
  EXPECT_NE(ending_sentence(look).find("stopped: 1 of 3"), std::string::npos);
}

}  // namespace
}  // namespace snug::monitor
