// snug lab where something goes wrong: rows that end in every way, faults of its user, a killed
// lab, a full disk, and the kernel's killer.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <map>

#include "report/live_status.h"
#include "system/lab_with_stand_ins.h"

namespace snug::tests {
namespace {

using test::comes_true;
using test::is_running;
using test::read_process;

TEST_F(Lab, EveryEndOfARowIsAResult) {
  write_rows({"fine", "crash", "hang", "killed", "full", "oom", "wrong", "silent"},
             "row_timeout: 2");
  stand_in(
      "crash) ulimit -c 0; kill -SEGV $$;;\n"
      "hang) sleep 1000;;\n"
      "killed) kill -9 $$;;\n"
      "full) cat /dev/zero > /dev/full || exit 2;;\n"
      "oom) out_of_memory;;\n"
      "wrong) echo 'snug: --seed: no such thing' >&2; exit 2;;\n"
      "silent) exit 0;;");
  const Result result = lab();
  EXPECT_EQ(result.exit_code, 1) << result.output;
  const std::map<std::string, std::string> expected{
      {"fine", "ok"},    {"crash", "crashed"}, {"hang", "timeout"}, {"killed", "crashed"},
      {"full", "error"}, {"oom", "oom"},       {"wrong", "error"},  {"silent", "error"}};
  for (const auto& [id, outcome] : expected) EXPECT_EQ(row(id)["outcome"], outcome) << id;
  EXPECT_NE(row("crash")["reason"].get<std::string>().find("SIGSEGV"), std::string::npos);
  EXPECT_NE(row("killed")["reason"].get<std::string>().find("SIGKILL"), std::string::npos);
  EXPECT_NE(row("full")["reason"].get<std::string>().find("disk"), std::string::npos);
  EXPECT_NE(row("wrong")["reason"].get<std::string>().find("no such thing"), std::string::npos);
  EXPECT_NE(row("silent")["reason"].get<std::string>().find("run.json"), std::string::npos);
  EXPECT_EQ(row("fine")["measured"]["peak_allocated"], 80);
  EXPECT_NE(result.output.find("[1/8] fine"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("[8/8] silent"), std::string::npos) << result.output;
  for (const char* name : {"report.html", "report.md", "report.csv", "report.json"})
    EXPECT_TRUE(fs::exists(out() / name)) << name;
}

TEST_F(Lab, ADamagedResultIsDoneAgain) {
  write_rows({"fine"});
  stand_in("");
  lab();
  write_file_atomically(out() / "rows/fine/row.json", "{\"schema\": 1, \"outc");
  forget_calls();
  const Result result = lab();
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("row.json is damaged"), std::string::npos) << result.output;
  EXPECT_EQ(calls(), (std::map<std::string, int>{{"fine", 1}}));
}

TEST_F(Lab, WhatOutlivesARowIsEndedAndSaid) {
  write_rows({"leaves"});
  stand_in(
      "leaves) setsid sh -c \"echo \\$\\$ > $here/left; exec sleep 1000\" &\n"
      "  while [ ! -s $here/left ]; do sleep 0.05; done; well;;");
  const Result result = lab();
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(row("leaves")["outcome"], "ok");
  EXPECT_EQ(row("leaves")["reason"], "1 process that it started outlived it and was stopped");
  EXPECT_TRUE(comes_true([&] { return !is_running(read_process(folder_ / "left")); }));
}

TEST_F(Lab, KilledItTakesItsRowAlongAndGoesOn) {
  write_rows({"fine", "slow"});
  stand_in("slow) [ -e $here/quick ] && well; echo $$ > $here/process; exec sleep 1000;;");
  const pid_t child = start_lab();
  const pid_t slow = read_process(folder_ / "process");
  ::kill(child, SIGKILL);
  EXPECT_EQ(finish(child), 128 + SIGKILL);
  EXPECT_TRUE(comes_true([&] { return !is_running(slow); }));
  EXPECT_FALSE(has_row("slow"));
  write_file_atomically(folder_ / "quick", "");
  forget_calls();
  EXPECT_EQ(lab().exit_code, 0);  // nobody holds the folder any more
  EXPECT_EQ(calls(), (std::map<std::string, int>{{"slow", 1}}));
}

TEST_F(Lab, TwoInOneFolderAreRefused) {
  write_rows({"slow"});
  stand_in("slow) echo $$ > $here/process; exec sleep 1000;;");
  const pid_t child = start_lab();
  ASSERT_GT(read_process(folder_ / "process"), 0);
  const Result second = lab();
  EXPECT_EQ(second.exit_code, 2);
  EXPECT_NE(second.output.find(out().string() + " is in use: snug lab run "), std::string::npos)
      << second.output;
  ::kill(child, SIGINT);
  finish(child);
}

TEST_F(Lab, AnotherKindOfRunInAFolderIsRefused) {
  write_rows({"fine"});
  stand_in("");
  lab();
  const test::Environment program("SNUG_LAB_PROGRAM", (folder_ / "program").string());
  const Result result =
      run({"lab", "run", folder_ / "odd.yaml", "--plan", "--out_dir", out().string()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.output.find("mode scaled"), std::string::npos) << result.output;
}

TEST_F(Lab, FaultsAreSaidBeforeAnythingRuns) {
  write_rows({"fine"});
  stand_in("");
  const std::string suite = folder_ / "odd.yaml";
  const std::vector<std::pair<Words, const char*>> faults{
      {{"lab", "run", "no-such-suite"}, "no-such-suite"},
      {{"lab", "run"}, "needs suites"},
      {{"lab", "run", suite, "--plan", "--scaled"}, "--plan and --scaled"},
      {{"lab", "run", suite, "--scaled", "--device", "a100-80"}, "--device a100-80"},
      {{"lab", "run", suite, "--scaled", "--rows", "nothing*"}, "nothing*"},
      {{"lab", "run", suite, "--scaled", "--set", "train.max_stepz=3"}, "train.max_stepz"},
      {{"lab", "run", suite, "--scaled", "--set", "train.max_steps"}, "KEY=VALUE"},
      {{"lab", "run", suite, "--plan", "--device", "rtx-9999"}, "rtx-9999"},
      {{"lab", "run", suite, "--plan", "--memory_budget", "40MiB"},
       "leaves no memory for training"},
      {{"lab", "run", suite, suite, "--scaled", "--rows", "nothing*"}, "nothing*"},
      {{"lab", "run", folder_.path().string(), "--plan"}, "is a directory"},
      {{"lab", "run", suite, "--plna"}, "did you mean --plan?"},
      {{"lab", "report", suite}, "not the folder of a lab run"},
      {{"lab", "compare", folder_.path().string()}, "two lab runs"},
      {{"lab", "list", "--plan"}, "--plan applies to snug lab run"}};
  const test::Environment program("SNUG_LAB_PROGRAM", (folder_ / "program").string());
  for (auto [given, said] : faults) {
    if (given[1] == "run") given.insert(given.end(), {"--out_dir", out().string()});
    const Result result = run(given);
    EXPECT_EQ(result.exit_code, 2) << said << "\n" << result.output;
    EXPECT_NE(result.output.find(said), std::string::npos) << said << " in\n" << result.output;
  }
  EXPECT_TRUE(calls().empty());
  EXPECT_FALSE(fs::exists(out()));
  const Result nonsense = run({"lab", "nonsense"});
  EXPECT_NE(nonsense.output.find("is not one of run, list"), std::string::npos) << nonsense.output;
  EXPECT_EQ(nonsense.output.find("faults"), std::string::npos) << "one fault, told once\n"
                                                               << nonsense.output;
}

TEST_F(Lab, TheTableIsPrintedAlsoWhereTheReportCannotBeWritten) {
  write_rows({"fine"});
  stand_in("");
  fs::create_directories(out() / "report.html/in-the-way");
  const Result result = lab();
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_NE(result.output.find("1 row: 1 ok"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("The rows are kept in"), std::string::npos) << result.output;
}

TEST_F(Lab, WhoWatchesATimedOutRowSeesThat) {
  write_rows({"hang"}, "row_timeout: 2");
  report::LiveState live;
  live.state = "ended";
  live.outcome = "error";
  live.step = 354;
  live.step_seconds = 0.25;
  write_file_atomically(folder_ / "live.json", report::live_json(live));
  stand_in("hang) mkdir $out/live; cp $here/live.json $out/live/rank-0.json; sleep 1000;;");
  EXPECT_EQ(lab().exit_code, 1);
  const fs::path file = report::live_file(out() / "rows/hang/run", 0);
  EXPECT_EQ(report::read_live_json(file).outcome, "timeout");
  EXPECT_EQ(row("hang")["measured"]["step_seconds"], 0.25) << "what it had measured until then";
}

TEST_F(Lab, MissingModelsAreSaidOnceWithTheCommandsThatFetchThem) {
  write_file_atomically(
      folder_ / "odd.yaml",
      "suite: odd\ntitle: T\nabout: A.\ndevice: a100-80\nmodels: {tiny: {checkpoint: "
      "checkpoints/Some/Model, config: " +
          tiny_config() + ", scaled: " + tiny_config() +
          "}}\nset: {data: Synthetic}\nrows: [{id: a, title: A, model: tiny}, {id: b, title: B, "
          "model: tiny}]");
  const Result result = run({"lab", "run", folder_ / "odd.yaml", "--out_dir", out().string()});
  EXPECT_EQ(result.exit_code, 2);
  for (const char* part :
       {"checkpoints/Some/Model (2 rows)", "snug download Some/Model", "--plan", "--scaled"})
    EXPECT_NE(result.output.find(part), std::string::npos) << part << " in\n" << result.output;
  EXPECT_FALSE(fs::exists(out()));
}

// A disk of its own, as small as it takes.
class SmallDisk {
 public:
  explicit SmallDisk(const fs::path& at) : at_(at) {
    fs::create_directories(at);
    is_there_ = ::mount("tmpfs", at.c_str(), "tmpfs", 0, "size=400k") == 0;
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (is_there_) ::umount2(at_.c_str(), MNT_DETACH);
  }
  bool is_there() const { return is_there_; }

 private:
  fs::path at_;
  bool is_there_ = false;
};

TEST_F(Lab, AFullDiskLosesNoRowThatWasDone) {
  const SmallDisk disk(out());
  if (!disk.is_there()) GTEST_SKIP() << "a tmpfs cannot be mounted here";
  write_rows({"fine", "fills", "last"});
  stand_in("fills) cat /dev/zero > $out/filler; well;;");
  const Result result = lab();
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_NE(result.output.find("No space left on device"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("the same command continues"), std::string::npos) << result.output;
  EXPECT_EQ(row("fine")["outcome"], "ok");
  EXPECT_FALSE(has_row("last"));
  fs::remove(out() / "rows/fills/run/filler");
  stand_in("");
  forget_calls();
  EXPECT_EQ(lab().exit_code, 0);
  EXPECT_EQ(calls(), (std::map<std::string, int>{{"fills", 1}, {"last", 1}}));
}

// Bytes that the lab's own process needs; a watched one takes more.
#ifdef __SANITIZE_ADDRESS__
constexpr const char* kLimit = "1600000000";
#else
constexpr const char* kLimit = "209715200";
#endif

// A control group of 200 MiB, of either version of the kernel's interface.
class ControlGroup {
 public:
  ControlGroup() {
    const std::string name = "snug-test-" + std::to_string(::getpid());
    for (const char* mount : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
      const fs::path folder = fs::path(mount) / name;
      std::error_code error;
      if (!fs::create_directory(folder, error)) continue;
      folder_ = folder;
      if (put("memory.limit_in_bytes") || put("memory.max")) {
        put("memory.swap.max", "0");
        return;
      }
      fs::remove(folder, error);
      folder_.clear();
    }
  }
  ControlGroup(const ControlGroup&) = delete;
  ControlGroup& operator=(const ControlGroup&) = delete;
  ~ControlGroup() {
    std::error_code ignored;
    if (is_there()) comes_true([&] { return fs::remove(folder_, ignored); });
  }
  bool is_there() const { return !folder_.empty(); }
  bool put(const char* file, const char* text = kLimit) const {
    std::ofstream out(folder_ / file, std::ios::in);
    out << text << std::flush;
    return static_cast<bool>(out);
  }
  std::string members() const { return folder_ / "cgroup.procs"; }

 private:
  fs::path folder_;
};

TEST_F(Lab, TheKernelsKillerEndsTheRowAndNotTheLab) {
  const ControlGroup group;
  if (!group.is_there()) GTEST_SKIP() << "no control group with a memory limit can be made here";
  write_rows({"greedy", "fine"});
  stand_in("greedy) exec tail /dev/zero;;");
  const test::Environment program("SNUG_LAB_PROGRAM", (folder_ / "program").string());
  std::string command = "echo \\$\\$ > " + group.members() + " && exec " + SNUG_BINARY;
  for (const std::string& word : words({})) command += " '" + word + "'";
  const Result result = run_in_shell("sh -c \"" + command + "\"");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(row("greedy")["outcome"], "oom") << row("greedy");
  EXPECT_NE(row("greedy")["reason"].get<std::string>().find("kernel"), std::string::npos);
  EXPECT_EQ(row("fine")["outcome"], "ok");
}

}  // namespace
}  // namespace snug::tests
