// SPDX-License-Identifier: Apache-2.0
#include "train/out_dir/earlier_run.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <string>

#include "base/files.h"
#include "files/checkpoint/folders.h"
#include "support/temp_folder.h"

namespace snug::train {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

class EarlierRun : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text = "x") const {
    fs::create_directories((folder_ / name).parent_path());
    write_file_atomically(folder_ / name, text);
  }
  void write_run() const {
    for (const char* name :
         {"step-000002/state.json", "step-000004/state.json", "final/config.json", "metrics.csv",
          "log.txt", "report.html", "tensorboard/events", "logs/rank-0.log", "live/rank-0.json",
          "notes.txt"})
      write(name, name);
    write("run.json", R"({"steps": [{"step": 1}]})");
  }
  Names names(const fs::path& below = "") const {
    Names found;
    for (const auto& entry : fs::directory_iterator(folder_ / below))
      found.insert(entry.path().filename());
    return found;
  }
  const test::TempFolder folder_;
};

const Names kAll{"step-000002", "step-000004", "final", "metrics.csv", "log.txt",
                 "report.html", "tensorboard", "logs",  "run.json"};

TEST_F(EarlierRun, IsMovedWhole) {
  write_run();
  EXPECT_TRUE(holds_earlier_run(folder_.path()));
  put_logs_by(folder_.path());
  EXPECT_EQ(set_run_aside(folder_.path()), folder_ / "earlier");
  EXPECT_EQ(names("earlier"), kAll);
  EXPECT_EQ(read_file(folder_ / "earlier/logs/rank-0.log"), "logs/rank-0.log");
  EXPECT_EQ(names(), (Names{"earlier", "live", "notes.txt"}));
  EXPECT_FALSE(holds_earlier_run(folder_.path()));
  write_run();
  put_logs_by(folder_.path());
  EXPECT_EQ(set_run_aside(folder_.path()), folder_ / "earlier-2");
  EXPECT_EQ(names("earlier"), kAll) << "nothing is lost";
}

// The new run reads it.
TEST_F(EarlierRun, LeavesAFileInUseWhereItIs) {
  write_run();
  write("teacher.safetensors", "words");
  write("reference.safetensors", "numbers");
  set_run_aside(folder_.path(), folder_ / "teacher.safetensors");
  EXPECT_EQ(read_file(folder_ / "teacher.safetensors"), "words");
  EXPECT_EQ(read_file(folder_ / "earlier/reference.safetensors"), "numbers");
}

TEST_F(EarlierRun, ThatNeverTookAStepIsNone) {
  EXPECT_FALSE(holds_earlier_run(folder_ / "nowhere"));
  write("run.json", R"({"outcome": "oom", "steps": []})");
  write("metrics.csv", "step,loss\n");
  EXPECT_FALSE(holds_earlier_run(folder_.path()));
  write("metrics.csv", "step,loss\n1,4.5\n");
  EXPECT_TRUE(holds_earlier_run(folder_.path())) << "killed before its first checkpoint";
  write("metrics.csv", "step,loss\n");
  write("run.json", "{damaged");
  EXPECT_TRUE(holds_earlier_run(folder_.path())) << "who knows";
  fs::remove(folder_ / "run.json");
  write("final/config.json");
  EXPECT_TRUE(holds_earlier_run(folder_.path()));
}

// A process that dies after each of its renames in turn: everything is in its place again.
TEST_F(EarlierRun, MovedByAProcessThatIsKilledLosesNothing) {
  for (size_t moved = 0; moved <= kAll.size(); ++moved) {
    const test::TempFolder other;
    for (const std::string& name : kAll) {
      fs::create_directories(other / name);
      write_file_atomically(other / name / "file", name);
    }
    fs::create_directories(other / ".earlier");
    size_t count = 0;
    for (const std::string& name : kAll)
      if (count++ < moved) fs::rename(other / name, other / ".earlier" / name);
    clear_up_after_kills(other.path());
    EXPECT_FALSE(fs::exists(other / ".earlier"));
    for (const std::string& name : kAll) EXPECT_EQ(read_file(other / name / "file"), name) << moved;
  }
}

TEST_F(EarlierRun, ItsModelIsWholeWhereverTheKillCame) {
  const auto state = [&](const Names& there) {
    for (const char* name : {"final", ".final.new", ".final.replaced"}) {
      fs::remove_all(folder_ / name);
      if (there.contains(name)) write(std::string(name) + "/config.json", name);
    }
    clear_up_after_kills(folder_.path());
    EXPECT_FALSE(fs::exists(folder_ / ".final.new"));
    EXPECT_FALSE(fs::exists(folder_ / ".final.replaced"));
    return fs::exists(folder_ / "final") ? read_file(folder_ / "final/config.json") : "";
  };
  EXPECT_EQ(state({".final.new"}), "") << "half of a first one";
  EXPECT_EQ(state({"final", ".final.new"}), "final");
  EXPECT_EQ(state({".final.new", ".final.replaced"}), ".final.new") << "between the two renames";
  EXPECT_EQ(state({"final", ".final.replaced"}), "final");
  EXPECT_EQ(state({".final.replaced"}), ".final.replaced");
}

TEST_F(EarlierRun, LeftoversOfAKilledOneGo) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  const std::string gone = ".tmp-" + std::to_string(child);
  write_run();
  const Names before = names();
  write(".tmp-step-000008/model.safetensors");
  write(".tmp-step-000006.old/model.safetensors");
  for (const char* name : {"run.json", "live/rank-0.json", "logs/rank-0.json"}) write(name + gone);
  clear_up_after_kills(folder_.path());
  EXPECT_EQ(names(), before);
  EXPECT_EQ(names("live"), (Names{"rank-0.json"}));
  EXPECT_EQ(names("logs"), (Names{"rank-0.log"}));
  clear_up_after_kills(folder_ / "nowhere");
}

// Saved twice at one step, and killed between the two renames of the second time.
TEST_F(EarlierRun, ACheckpointThatOnlyLacksItsNameGetsIt) {
  write(".tmp-step-000004/state.json", "new");
  write(".tmp-step-000004.old/state.json", "old");
  clear_up_after_kills(folder_.path());
  EXPECT_EQ(names(), (Names{"step-000004"}));
  EXPECT_EQ(read_file(folder_ / "step-000004/state.json"), "new");
}

TEST_F(EarlierRun, LogsOfAStartThatCameToNothingDoNotTakeTheEarlierOnesPlace) {
  write("logs/rank-0.log", "the run");
  put_logs_by(folder_.path());
  EXPECT_FALSE(fs::exists(folder_ / "logs"));
  write("logs/rank-0.log", "out of memory");
  put_logs_by(folder_.path());
  write("run.json", R"({"steps": [{"step": 1}]})");
  set_run_aside(folder_.path());
  EXPECT_EQ(read_file(folder_ / "earlier/logs/rank-0.log"), "the run");
}

TEST_F(EarlierRun, IsNotTheOneWhoseCheckpointIsGoneOnFrom) {
  write_run();
  write("other/step-000002/state.json");
  EXPECT_TRUE(is_of_run_in(folder_.path(), folder_ / "step-000002"));
  EXPECT_TRUE(is_of_run_in(folder_.path(), folder_ / "step-000002/"));
  EXPECT_FALSE(is_of_run_in(folder_ / "other", folder_ / "step-000002"));
  write("earlier/step-000009/state.json");
  EXPECT_TRUE(is_of_run_in(folder_.path(), folder_ / "earlier/step-000009"));
  write("earlier/run.json");
  EXPECT_FALSE(is_of_run_in(folder_.path(), folder_ / "earlier/step-000009"));
}

}  // namespace
}  // namespace snug::train
