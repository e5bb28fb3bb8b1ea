// A run's folder: one writer at a time, an earlier run's files kept, and a disk that fills up or
// goes.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <functional>
#include <set>

#include "system/program.h"

namespace snug::tests {
namespace {

using Words = std::vector<std::string>;
using Names = std::set<std::string>;

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

bool wait_until(const std::function<bool()>& holds) {
  for (int attempt = 0; attempt < 600; ++attempt) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

// Past the look at the disk's free space.
bool is_training(const fs::path& out) {
  const fs::path live = out / "live/rank-0.json";
  return fs::exists(live) && has(read_file(live), "\"training\"");
}

Names names_in(const fs::path& folder) {
  Names found;
  for (const auto& entry : fs::directory_iterator(folder)) found.insert(entry.path().filename());
  return found;
}

class RunFolder : public ::testing::Test {
 protected:
  Words words(const Words& more) const { return finetune_words(rows_, out_, more); }
  Result train(const Words& more) const { return run(words(more)); }

  const TempFolder folder_;
  const fs::path rows_ = write_rows(folder_ / "rows.jsonl", 320);
  const fs::path out_ = folder_ / "out";
};

TEST_F(RunFolder, IsOneRunsAlone) {
  const Words more{
      "--train.epochs", "200", "--train.save_interval", "3", "--train.log_interval", "1",
      "--resume",       "auto"};
  const pid_t first = start(words(more), folder_ / "log");
  ASSERT_TRUE(wait_until([&] { return fs::exists(out_ / "step-000003"); }));
  const Result second = train(more);
  EXPECT_EQ(second.exit_code, 2) << second.output;
  EXPECT_TRUE(has(second.output, fmt::format("{} is in use: snug finetune_full ", out_.string())))
      << second.output;
  EXPECT_TRUE(has(second.output, fmt::format("(process {} on ", first))) << second.output;
  EXPECT_TRUE(has(second.output, "choose another --out_dir")) << second.output;
  const Result demo = run({"demo", tiny_checkpoint(), "--out_dir", out_, "--questions", "numbers",
                           "--data_dir", folder_ / "data"});
  EXPECT_TRUE(has(demo.output, "is in use")) << demo.output;
  ::kill(first, SIGINT);
  EXPECT_EQ(finish(first), 130) << read_file(folder_ / "log");
  const size_t steps = read_run(out_)["steps"].size();
  std::istringstream rows(read_file(out_ / "metrics.csv"));
  size_t count = 0;
  for (std::string row; std::getline(rows, row);) count += !has(row, ",,,") && row[0] != 's';
  EXPECT_EQ(count, steps) << "every step once";
}

TEST_F(RunFolder, OfAKilledRunIsFree) {
  const pid_t first = start(words({"--train.epochs", "200"}), folder_ / "log");
  ASSERT_TRUE(wait_until([&] { return fs::exists(out_ / "metrics.csv"); }));
  ::kill(first, SIGKILL);
  finish(first);
  EXPECT_EQ(train({"--train.max_steps", "1"}).exit_code, 0);
}

TEST_F(RunFolder, OfAnEarlierRunIsClearedOnceTheNewOneBegins) {
  const Words small{"--train.max_steps", "4", "--train.save_interval", "2"};
  ASSERT_EQ(train(small).exit_code, 0);
  const std::string record = read_file(out_ / "run.json");
  const std::string model = read_file(out_ / "final/model.safetensors");
  // One that never begins leaves everything as it is.
  const Result failed = train({"--data.json_path", folder_ / "none.jsonl"});
  EXPECT_EQ(failed.exit_code, 2) << failed.output;
  EXPECT_FALSE(has(failed.output, "Moved"));
  EXPECT_EQ(read_file(out_ / "run.json"), record);
  EXPECT_FALSE(fs::exists(out_ / "earlier"));
  const Result second = train({"--train.max_steps", "1", "--train.save_model", "false"});
  ASSERT_EQ(second.exit_code, 0) << second.output;
  EXPECT_TRUE(has(second.output,
                  fmt::format("Moved an earlier run's files to {}\n", (out_ / "earlier").string())))
      << second.output;
  EXPECT_EQ(names_in(out_ / "earlier"), (Names{"final", "log.txt", "metrics.csv", "report.html",
                                               "run.json", "step-000002", "step-000004"}));
  EXPECT_EQ(read_file(out_ / "earlier/run.json"), record);
  EXPECT_EQ(read_file(out_ / "earlier/final/model.safetensors"), model);
  EXPECT_EQ(names_in(out_), (Names{".lock", "earlier", "live", "log.txt", "metrics.csv",
                                   "report.html", "run.json"}));
  EXPECT_EQ(read_run(out_)["steps"].size(), 1U);
}

TEST_F(RunFolder, OfTheModelThatIsTrainedIsRefused) {
  ASSERT_EQ(train({"--train.max_steps", "1"}).exit_code, 0);
  Words again = words({"--train.max_steps", "1"});
  again[1] = out_ / "final";
  const Result result = run(again);
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_TRUE(has(result.output,
                  "this run starts from it and would overwrite it; choose another --out_dir"))
      << result.output;
  EXPECT_TRUE(fs::exists(out_ / "final/model.safetensors"));
}

// What is said of a full disk: the model from a checkpoint of the last step.
TEST_F(RunFolder, ResumedAtItsEndWritesTheModel) {
  const Words more{"--train.max_steps", "4", "--train.save_interval", "4", "--resume", "auto"};
  ASSERT_EQ(train(more).exit_code, 0);
  const std::string model = read_file(out_ / "final/model.safetensors");
  fs::remove_all(out_ / "final");
  const Result again = train(more);
  EXPECT_EQ(again.exit_code, 0) << again.output;
  EXPECT_EQ(read_file(out_ / "final/model.safetensors"), model);
  EXPECT_EQ(read_run(out_)["steps"].size(), 4U);
}

TEST_F(RunFolder, ThatTheModelCannotTakeIsRefusedBeforeTheFirstStep) {
  ASSERT_EQ(train({"--train.max_steps", "2", "--train.save_interval", "2"}).exit_code, 0);
  std::ofstream(out_ / "final/notes.txt") << "mine";
  const Result again = train({"--train.max_steps", "4", "--resume", "auto"});
  EXPECT_EQ(again.exit_code, 2) << again.output;
  EXPECT_TRUE(has(again.output, "final contains notes.txt, which is not a model file; move it"))
      << again.output;
  EXPECT_EQ(read_run(out_)["steps"].size(), 2U);
  EXPECT_EQ(read_file(out_ / "final/notes.txt"), "mine");
}

// A service may start programs without them; files would be opened in their place.
TEST_F(RunFolder, IsNotWrittenToByWhatIsPrintedNowhere) {
  const Words more{"--train.max_steps", "2", "--train.log_interval", "1"};
  ASSERT_EQ(train(more).exit_code, 0);
  const auto lines = [&](const char* name) {
    const std::string text = read_file(out_ / name);
    return std::count(text.begin(), text.end(), '\n');
  };
  const auto rows = lines("metrics.csv"), log = lines("log.txt");
  Words closed = words(more);
  std::string command = "exec 0<&- 1>&- 2>&-; exec snug";
  for (const std::string& word : closed) command += " '" + word + "'";
  ASSERT_EQ(run_in_shell(command).exit_code, 0);
  EXPECT_EQ(lines("metrics.csv"), rows) << read_file(out_ / "metrics.csv");
  EXPECT_EQ(lines("log.txt"), log + 1) << "an earlier run's files were moved, which is said";
}

TEST_F(RunFolder, MergesAndConversionsLeaveNoLock) {
  ASSERT_EQ(train({"--train.max_steps", "1"}).exit_code, 0);
  ASSERT_EQ(run({"convert", out_ / "final", folder_ / "to/litgpt", "--to", "litgpt"}).exit_code, 0);
  EXPECT_EQ(names_in(folder_ / "to"), (Names{"litgpt"}));
}

class SmallDisk : public RunFolder {
 protected:
  bool mount(const std::string& size) {
    fs::create_directories(disk_);
    mounted_ = ::mount("tmpfs", disk_.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
    return mounted_;
  }
  void TearDown() override {
    if (mounted_) ::umount2(disk_.c_str(), MNT_DETACH);
  }
  Result train_there(const Words& more) const {
    return run(finetune_words(rows_, disk_ / "out", more));
  }

  const fs::path disk_ = folder_ / "disk";
  bool mounted_ = false;
};

TEST_F(SmallDisk, WithoutRoomForTheModelIsRefusedBeforeTheFirstStep) {
  if (!mount("100k")) GTEST_SKIP() << "cannot mount a small disk here, which takes root";
  const Result result = train_there({});
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_TRUE(has(result.output, "has no room for the trained model")) << result.output;
  EXPECT_FALSE(has(result.output, "step 1"));
}

TEST_F(SmallDisk, ThatCheckpointsWillFillIsWarnedOf) {
  if (!mount("1500k")) GTEST_SKIP() << "cannot mount a small disk here, which takes root";
  const Result result =
      train_there({"--train.save_interval", "1", "--train.keep_checkpoints", "9"});
  EXPECT_TRUE(has(result.output, "this run will fill the disk of ")) << result.output;
  EXPECT_TRUE(has(result.output, "--train.save_interval none")) << result.output;
}

// The disk is filled while it trains, and made room on while it waits.
TEST_F(SmallDisk, ThatIsFullAtTheEndIsWaitedFor) {
  if (!mount("4m")) GTEST_SKIP() << "cannot mount a small disk here, which takes root";
  const fs::path out = disk_ / "out";
  const pid_t child =
      start(finetune_words(rows_, out, {"--train.epochs", "6", "--train.log_interval", "100000"}),
            folder_ / "log");
  ASSERT_TRUE(wait_until([&] { return is_training(out); }));
  std::ofstream(disk_ / "ballast") << std::string(size_t{4} << 20, 'x');
  ASSERT_TRUE(wait_until([&] { return has(read_file(folder_ / "log"), "cannot be written"); }))
      << read_file(folder_ / "log");
  EXPECT_TRUE(has(read_file(folder_ / "log"), "snug tries again every 10 s for 10 minutes"));
  EXPECT_TRUE(has(read_file(folder_ / "log"), "No checkpoint holds these weights."));
  fs::remove(disk_ / "ballast");
  EXPECT_EQ(finish(child), 0) << read_file(folder_ / "log");
  EXPECT_TRUE(fs::exists(out / "final/model.safetensors"));
  EXPECT_EQ(read_run(out)["outcome"], "ok");
}

// The last checkpoint still fits, the model does not.
TEST_F(SmallDisk, ThatStaysFullLeavesACheckpointToMakeTheModelFrom) {
  if (!mount("4m")) GTEST_SKIP() << "cannot mount a small disk here, which takes root";
  const fs::path out = disk_ / "out";
  const Words words = finetune_words(rows_, out,
                                     {"--train.max_steps", "30", "--train.save_interval", "30",
                                      "--train.log_interval", "100000", "--resume", "auto"});
  const pid_t child = start(words, folder_ / "log");
  ASSERT_TRUE(wait_until([&] { return fs::exists(out / "run.json"); }));
  std::ofstream(disk_ / "ballast")
      << std::string(fs::space(disk_).available - (size_t{780} << 10), 'x');
  ASSERT_TRUE(wait_until([&] { return has(read_file(folder_ / "log"), "cannot be written"); }))
      << read_file(folder_ / "log");
  ::kill(child, SIGINT);
  EXPECT_EQ(finish(child), 130);
  const std::string output = read_file(folder_ / "log");
  EXPECT_TRUE(has(output, fmt::format("{} holds these weights: once there is space, the same "
                                      "command with --resume auto writes the model from them.",
                                      (out / "step-000030").string())))
      << output;
  EXPECT_FALSE(fs::exists(out / "final"));
  fs::remove(disk_ / "ballast");
  EXPECT_EQ(run(words).exit_code, 0);
  EXPECT_TRUE(fs::exists(out / "final/model.safetensors"));
}

TEST_F(RunFolder, GroupMayWriteWhereTheUmaskSaysSo) {
  const mode_t before = ::umask(0007);
  const Result result = train({"--train.max_steps", "2", "--train.save_interval", "1"});
  ::umask(before);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(out_)) {
    const auto mode = static_cast<unsigned>(entry.status().permissions()) & 0777U;
    EXPECT_EQ(mode, entry.is_directory() ? 0770U : 0660U) << entry.path();
    files += entry.is_regular_file();
  }
  EXPECT_GT(files, 10);
}

// A network share that goes away while a run has files open there, and is mounted again.
class LostDisk : public SmallDisk {
 protected:
  bool mount_twice() {
    if (!mount("16m")) return false;
    fs::create_directories(kept_);
    is_kept_ = ::mount(disk_.c_str(), kept_.c_str(), nullptr, MS_BIND, nullptr) == 0;
    return is_kept_;
  }
  void lose() const { ASSERT_EQ(::umount2(disk_.c_str(), MNT_DETACH), 0); }
  void bring_back() const {
    ASSERT_EQ(::mount(kept_.c_str(), disk_.c_str(), nullptr, MS_BIND, nullptr), 0);
  }
  // As a kernel makes a disk that fails, under files that are open.
  void make_read_only() const {
    bring_back();
    ASSERT_EQ(::mount(nullptr, disk_.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr),
              0);
  }
  Words words_to(int64_t steps) const {
    return finetune_words(
        rows_, out_,
        {"--train.epochs", "200", "--train.max_steps", std::to_string(steps),
         "--train.save_interval", "100", "--train.log_interval", "100000", "--resume", "auto"});
  }
  void TearDown() override {
    if (is_kept_) ::umount2(kept_.c_str(), MNT_DETACH);
    SmallDisk::TearDown();
  }

  const fs::path kept_ = folder_ / "kept", out_ = disk_ / "out";
  bool is_kept_ = false;
};

TEST_F(LostDisk, EndsTheRunAtItsNextCheckpoint) {
  if (!mount_twice()) GTEST_SKIP() << "cannot mount a small disk here, which takes root";
  const pid_t child = start(words_to(8000), folder_ / "log");
  ASSERT_TRUE(wait_until([&] { return fs::exists(out_ / "step-000100"); }));
  ASSERT_TRUE(wait_until([&] { return has(read_file(folder_ / "log"), "Checkpoint "); }));
  lose();
  EXPECT_EQ(finish(child), 2);
  const std::string output = read_file(folder_ / "log");
  EXPECT_TRUE(has(output, fmt::format("snug: {} no longer holds what this run has written there",
                                      out_.string())))
      << output;
  EXPECT_EQ(names_in(disk_), Names()) << "the disk below gets nothing";
  bring_back();
  EXPECT_EQ(run({"verify", out_}).exit_code, 0);
  const Result resumed = run(words_to(201));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_TRUE(has(resumed.output, "Resume ")) << resumed.output;
}

TEST_F(LostDisk, MayBeReadOnlyFromSomeMomentOn) {
  if (!mount_twice()) GTEST_SKIP() << "cannot mount a small disk here, which takes root";
  const pid_t child = start(words_to(8000), folder_ / "log");
  ASSERT_TRUE(wait_until([&] { return fs::exists(out_ / "step-000100"); }));
  ASSERT_TRUE(wait_until([&] { return has(read_file(folder_ / "log"), "Checkpoint "); }));
  make_read_only();
  EXPECT_EQ(finish(child), 2);
  const std::string output = read_file(folder_ / "log");
  EXPECT_TRUE(has(output, "Read-only file system")) << output;
  EXPECT_EQ(run({"verify", out_}).exit_code, 0) << "of a folder that can only be read";
  EXPECT_TRUE(has(run(words_to(201)).output, "Read-only file system"));
  ASSERT_EQ(::umount2(disk_.c_str(), MNT_DETACH), 0);
  const Result resumed = run(words_to(201));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_TRUE(has(resumed.output, "Resume ")) << resumed.output;
}

TEST_F(LostDisk, IsWaitedForWithTheTrainedModel) {
  if (!mount_twice()) GTEST_SKIP() << "cannot mount a small disk here, which takes root";
  const pid_t child =
      start(finetune_words(rows_, out_, {"--train.epochs", "6", "--train.log_interval", "100000"}),
            folder_ / "log");
  ASSERT_TRUE(wait_until([&] { return is_training(out_); }));
  lose();
  ASSERT_TRUE(wait_until([&] { return has(read_file(folder_ / "log"), "cannot be written"); }));
  EXPECT_TRUE(has(read_file(folder_ / "log"), "Its checkpoints are where the folder is."));
  EXPECT_EQ(names_in(disk_), Names()) << "the disk below gets nothing";
  bring_back();
  EXPECT_EQ(finish(child), 0) << read_file(folder_ / "log");
  EXPECT_TRUE(fs::exists(out_ / "final/model.safetensors"));
  EXPECT_EQ(read_run(out_)["outcome"], "ok");
}

}  // namespace
}  // namespace snug::tests
