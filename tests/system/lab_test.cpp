// snug lab as a person uses it. Where an end has to be odd, a shell script stands in for the rows'
// program; the last tests run the program itself.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "report/live_status.h"
#include "report/run_record.h"
#include "support/programs.h"
#include "system/program.h"

namespace snug::tests {
namespace {

using nlohmann::json;
using test::comes_true;
using test::is_running;
using test::read_process;
using Words = std::vector<std::string>;

std::string tiny_config() { return tiny_checkpoint() + "/config.json"; }

json plan_json(bool fits) {
  return {{"model", {{"parameters", 1}, {"trained", 1}}},
          {"device", {{"name", "stand-in"}, {"kind", "cpu"}, {"usable_bytes", 100}}},
          {"fits", fits},
          {"margin_bytes", fits ? 10 : -10},
          {"memory", {{"peak_allocated", fits ? 90 : 110}, {"by_category", json::object()}}},
          {"time", {{"step_seconds", 0.5}}},
          {"timeline", json::array()}};
}

class Lab : public ::testing::Test {
 protected:
  void SetUp() override {
    report::RunRecord record;
    record.memory.measured.peak_allocated = 80;
    for (int step = 1; step <= 3; ++step)
      record.steps.push_back({.step = step, .loss = 2, .seconds = 0.1});
    report::write_run_json(record, folder_ / "ok.json");
    record.outcome = "oom";
    report::write_run_json(record, folder_ / "oom.json");
    write_file_atomically(folder_ / "fits.json", plan_json(true).dump());
    write_file_atomically(folder_ / "too_large.json", plan_json(false).dump());
  }

  // `rows`: YAML of the suite from `rows:` on.
  void write_suite(const std::string& rows, const std::string& scaled = "row_timeout: 60") {
    write_file_atomically(
        folder_ / "odd.yaml",
        "suite: odd\ntitle: Stand-ins\nabout: Rows that end in every way.\ndevice: a100-80\n"
        "models: {tiny: {checkpoint: " +
            tiny_checkpoint() + ", config: " + tiny_config() + ", scaled: " + tiny_config() +
            "}}\nset: {train.max_seq_length: 64, data: Synthetic}\n" +
            "scaled: {about: As they are, memory_budget: 100MiB, " + scaled +
            ", set: {data: Synthetic, train.max_steps: 3, train.save_model: false}}\n" + rows);
  }
  void write_rows(const Words& ids, const std::string& scaled = "row_timeout: 60") {
    std::string rows = "rows:\n";
    for (const std::string& id : ids)
      rows += "  - {id: " + id + ", title: " + id +
              ", model: tiny, set: {seed: " + std::to_string(rows.size()) + "}}\n";
    write_suite(rows, scaled);
  }

  // What a row's process does: `cases` of the shell's `case` over "ID".
  void stand_in(const std::string& cases, const std::string& plan = "cat $here/fits.json; exit 0") {
    const std::string shell = "here=" + folder_.path().string() + R"sh(
for word in "$@"; do
  [ "$before" = --out_dir ] && out=$word
  [ "$before" = --train.micro_batch_size ] && size=$word
  before=$word
done
if [ "$1" = plan ]; then )sh" +
                              plan +
                              R"sh(; fi
id=$(basename "$(dirname "$out")")
echo "$id" >> "$here/calls"
mkdir -p "$out"
well() { cp "$here/ok.json" "$out/run.json"; exit 0; }
out_of_memory() { cp "$here/oom.json" "$out/run.json"; echo 'snug: out of memory' >&2; exit 3; }
case "$id" in
)sh" + cases + R"sh(
*) well;;
esac)sh";
    test::write_script(folder_ / "program", shell);
  }

  Words words(const Words& more) const {
    Words all{"lab",      "run",       (folder_ / "odd.yaml").string(),
              "--scaled", "--out_dir", out().string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Result lab(const Words& more = {}) const {
    const test::Environment program("SNUG_LAB_PROGRAM", (folder_ / "program").string());
    return run(words(more));
  }
  pid_t start_lab(const Words& more = {}) const {
    const test::Environment program("SNUG_LAB_PROGRAM", (folder_ / "program").string());
    return start(words(more), folder_ / "lab.log");
  }

  fs::path out() const { return folder_ / "out"; }
  bool has_row(const std::string& id) const { return fs::exists(out() / "rows" / id / "row.json"); }
  json row(const std::string& id) const {
    return json::parse(read_file(out() / "rows" / id / "row.json"));
  }
  std::string outcome_in_report(const std::string& id) const {
    const json report = json::parse(read_file(out() / "report.json"));
    for (const json& each : report["rows"])
      if (each["id"] == id) return each["outcome"];
    return "no row";
  }
  std::map<std::string, int> calls() const {
    std::map<std::string, int> counts;
    std::ifstream in(folder_ / "calls");
    for (std::string line; std::getline(in, line);) ++counts[line];
    return counts;
  }
  void forget_calls() const { fs::remove(folder_ / "calls"); }

  TempFolder folder_;
};

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

TEST_F(Lab, RowsThatCameToAResultAreKept) {
  write_rows({"fine", "oom", "wrong"});
  stand_in("oom) out_of_memory;;\nwrong) exit 2;;");
  EXPECT_EQ(lab().exit_code, 2);
  forget_calls();
  const Result again = lab();
  EXPECT_EQ(calls(), (std::map<std::string, int>{{"wrong", 1}}));
  EXPECT_NE(again.output.find("(kept)"), std::string::npos) << again.output;
  forget_calls();
  lab({"--rows", "f*", "--restart"});
  EXPECT_EQ(calls(), (std::map<std::string, int>{{"fine", 1}}));
  forget_calls();
  lab({"--set", "train.max_steps=2"});  // another run
  EXPECT_EQ(calls(), (std::map<std::string, int>{{"fine", 1}, {"oom", 1}, {"wrong", 1}}));
  // The model's file is part of what a row is made from.
  forget_calls();
  fs::copy_file(tiny_config(), folder_ / "config.json");
  write_file_atomically(
      folder_ / "odd.yaml",
      "suite: odd\ntitle: T\nabout: A.\ndevice: a100-80\nmodels: {tiny: {config: "
      "config.json, scaled: config.json}}\nscaled: {about: A, memory_budget: "
      "100MiB}\nset: {data: Synthetic}\nrows: [{id: fine, title: F, model: tiny}]");
  EXPECT_EQ(lab().exit_code, 0);
  forget_calls();
  EXPECT_EQ(lab().exit_code, 0);
  EXPECT_TRUE(calls().empty());
  json config = json::parse(read_file(folder_ / "config.json"));
  config["num_hidden_layers"] = 3;
  write_file_atomically(folder_ / "config.json", config.dump());
  lab();
  EXPECT_EQ(calls(), (std::map<std::string, int>{{"fine", 1}}));
}

// A result of other words is in nobody's count: neither the report nor the exit code has it.
TEST_F(Lab, WhatWasDoneWithOtherWordsCountsAsNotDone) {
  write_rows({"fine", "crash"});
  stand_in("crash) ulimit -c 0; kill -SEGV $$;;");
  EXPECT_EQ(lab().exit_code, 1);
  EXPECT_EQ(lab({"--rows", "fine"}).exit_code, 1) << "the other row's crash is of these words";
  EXPECT_EQ(outcome_in_report("crash"), "crashed");
  const Result other = lab({"--rows", "fine", "--set", "train.max_steps=2"});
  EXPECT_EQ(other.exit_code, 0) << other.output;
  EXPECT_EQ(outcome_in_report("fine"), "ok");
  EXPECT_EQ(outcome_in_report("crash"), "not run");
  EXPECT_NE(other.output.find("with other options or files before"), std::string::npos)
      << other.output;
  // The folder alone says the same.
  EXPECT_EQ(run({"lab", "report", out()}).exit_code, 0);
  EXPECT_EQ(outcome_in_report("crash"), "not run");
  EXPECT_EQ(lab({"--rows", "fine"}).exit_code, 1) << "the first words again";
  EXPECT_EQ(outcome_in_report("crash"), "crashed");
}

TEST_F(Lab, TriesOfASearchThatHasChangedAreNotDone) {
  const std::string search =
      "searches: [{id: most, title: Most, model: tiny, over: train.micro_batch_size, together: "
      "[train.global_batch_size], between: [1, 2], set: {seed: SEED}}]\n";
  const auto write_seed = [&](const std::string& seed) {
    std::string text = "rows: [{id: base, title: Base, model: tiny}]\n" + search;
    write_suite(text.replace(text.find("SEED"), 4, seed));
  };
  stand_in("");
  write_seed("1");
  EXPECT_EQ(lab().exit_code, 0);
  EXPECT_EQ(outcome_in_report("most-2"), "ok");
  write_seed("2");
  EXPECT_EQ(lab({"--rows", "base"}).exit_code, 0);
  EXPECT_EQ(outcome_in_report("base"), "ok");
  EXPECT_EQ(outcome_in_report("most-2"), "not run");
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

TEST_F(Lab, StopsOnRequestAndGoesOn) {
  write_rows({"fine", "slow", "last"});
  const fs::path process = folder_ / "process";
  stand_in("slow) [ -e $here/quick ] && well; echo $$ > $here/process; exec sleep 1000;;");
  const pid_t child = start_lab();
  const pid_t slow = read_process(process);
  ASSERT_GT(slow, 0);
  ::kill(child, SIGINT);
  EXPECT_EQ(finish(child), 130) << read_file(folder_ / "lab.log");
  EXPECT_TRUE(comes_true([&] { return !is_running(slow); }));
  EXPECT_EQ(row("fine")["outcome"], "ok");
  EXPECT_EQ(row("slow")["outcome"], "interrupted");
  EXPECT_FALSE(has_row("last"));
  EXPECT_TRUE(fs::exists(out() / "report.html"));
  const std::string said = read_file(folder_ / "lab.log");
  EXPECT_NE(said.find("1 of 3 rows are done; the same command goes on"), std::string::npos) << said;
  write_file_atomically(folder_ / "quick", "");
  forget_calls();
  const Result result = lab();
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(calls(), (std::map<std::string, int>{{"slow", 1}, {"last", 1}}));
  for (const char* id : {"fine", "slow", "last"}) EXPECT_EQ(row(id)["outcome"], "ok") << id;
}

TEST_F(Lab, UnderNohupItGoesOnWhenTheTerminalGoes) {
  write_rows({"slow", "last"});
  stand_in("slow) echo $$ > $here/process; until [ -e $here/go ]; do sleep 0.05; done; well;;");
  const auto before = std::signal(SIGHUP, SIG_IGN);
  const pid_t child = start_lab();
  std::signal(SIGHUP, before);
  ASSERT_GT(read_process(folder_ / "process"), 0);
  ::kill(child, SIGHUP);
  ::kill(read_process(folder_ / "process"), SIGHUP);
  write_file_atomically(folder_ / "go", "");
  EXPECT_EQ(finish(child), 0) << read_file(folder_ / "lab.log");
  for (const char* id : {"slow", "last"}) EXPECT_EQ(row(id)["outcome"], "ok") << id;
}

TEST_F(Lab, WhatOutlivesARowIsEndedAndSaid) {
  write_rows({"leaves"});
  stand_in(
      "leaves) setsid sh -c \"echo \\$\\$ > $here/left; exec sleep 1000\" &\n"
      "  while [ ! -s $here/left ]; do sleep 0.05; done; well;;");
  const Result result = lab();
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(row("leaves")["outcome"], "ok");
  EXPECT_EQ(row("leaves")["reason"], "1 process that it started outlived it, and was ended");
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
  EXPECT_NE(second.output.find("another snug lab is running in " + out().string()),
            std::string::npos)
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

constexpr const char* kSearch =
    "rows: [{id: base, title: Base, model: tiny, set: {train.global_batch_size: 1, "
    "train.micro_batch_size: 1}}]\n"
    "searches: [{id: most, title: Most, from: base, over: train.micro_batch_size, together: "
    "[train.global_batch_size], between: [1, 512]}]\n";

TEST_F(Lab, ASearchFindsTheEdgeThatPlansShow) {
  write_suite(kSearch);
  stand_in("",
           "[ $size -le 40 ] && cat $here/fits.json && exit 0; cat $here/too_large.json; exit 3");
  const test::Environment program("SNUG_LAB_PROGRAM", (folder_ / "program").string());
  const Result result =
      run({"lab", "run", folder_ / "odd.yaml", "--plan", "--out_dir", out().string()});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(row("most-40")["outcome"], "ok") << result.output;
  EXPECT_EQ(row("most-41")["outcome"], "oom") << result.output;
  EXPECT_NE(row("most-41")["command"].get<std::string>().find("--train.global_batch_size 41"),
            std::string::npos)
      << row("most-41")["command"];
  EXPECT_NE(result.output.find("most-40 fits, most-41 does not"), std::string::npos)
      << result.output;
  EXPECT_TRUE(calls().empty());
}

// Runs are dear: plans find the edge, and runs say whether it is there.
TEST_F(Lab, ASearchRunsOnlyNearTheEdge) {
  write_suite(kSearch);
  const std::string plan =
      "[ $size -le 40 ] && cat $here/fits.json && exit 0; cat $here/too_large.json; exit 3";
  for (const int edge : {40, 37, 43}) {
    stand_in("most-*) [ $size -le " + std::to_string(edge) + " ] && well; out_of_memory;;", plan);
    forget_calls();
    fs::remove_all(out());
    const Result result = lab({"--rows", "most"});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(row("most-" + std::to_string(edge))["outcome"], "ok") << result.output;
    EXPECT_EQ(row("most-" + std::to_string(edge + 1))["outcome"], "oom") << result.output;
    EXPECT_FALSE(calls().contains("base"));
    EXPECT_LE(calls().size(), edge == 40 ? 2U : 6U);
    for (const auto& [id, times] : calls()) EXPECT_EQ(times, 1) << id;
  }
}

TEST_F(Lab, ASweepEndsWhereMemoryDoes) {
  write_suite(
      "sweeps: [{id: grow, title: Grow, model: tiny, over: batch_size, values: [1, 2, 4, 8, "
      "16]}]\n");
  stand_in("grow-4) out_of_memory;;");
  const Result result = lab();
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const json all = json::parse(read_file(out() / "lab.json"))["rows"];
  ASSERT_EQ(all.size(), 5U) << all;
  EXPECT_EQ(row(all[1])["outcome"], "ok");
  EXPECT_EQ(row(all[2])["outcome"], "oom") << result.output;
  for (const size_t beyond : {3, 4}) {
    EXPECT_EQ(row(all[beyond])["outcome"], "not run");
    EXPECT_NE(row(all[beyond])["reason"].get<std::string>().find("ended the sweep"),
              std::string::npos);
  }
  EXPECT_EQ(calls().size(), 3U);
}

TEST_F(Lab, ADryRunWritesNothing) {
  write_suite(kSearch);
  stand_in("", "cat $here/fits.json; exit 0");
  const Result result = lab({"--dry_run", "--rows", "base"});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("snug finetune_full"), std::string::npos) << result.output;
  EXPECT_FALSE(fs::exists(out()));
  EXPECT_TRUE(calls().empty());
}

TEST_F(Lab, FaultsAreSaidBeforeAnythingRuns) {
  write_rows({"fine"});
  stand_in("");
  const std::string suite = folder_ / "odd.yaml";
  const std::vector<std::pair<Words, const char*>> faults{
      {{"lab", "run", "no-such-suite"}, "no-such-suite"},
      {{"lab", "run"}, "wants suites"},
      {{"lab", "run", suite, "--plan", "--scaled"}, "--plan and --scaled"},
      {{"lab", "run", suite, "--scaled", "--device", "a100-80"}, "--device a100-80"},
      {{"lab", "run", suite, "--scaled", "--rows", "nothing*"}, "nothing*"},
      {{"lab", "run", suite, "--scaled", "--set", "train.max_stepz=3"}, "train.max_stepz"},
      {{"lab", "run", suite, "--scaled", "--set", "train.max_steps"}, "KEY=VALUE"},
      {{"lab", "run", suite, "--plan", "--device", "rtx-9999"}, "rtx-9999"},
      {{"lab", "run", suite, "--plan", "--memory_budget", "40MiB"}, "leaves nothing"},
      {{"lab", "run", suite, suite, "--scaled", "--rows", "nothing*"}, "nothing*"},
      {{"lab", "run", folder_.path().string(), "--plan"}, "is a directory"},
      {{"lab", "run", suite, "--plna"}, "did you mean --plan?"},
      {{"lab", "report", suite}, "no folder of a lab run"},
      {{"lab", "compare", folder_.path().string()}, "two folders"},
      {{"lab", "list", "--plan"}, "--plan is for snug lab run"}};
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

// What is wrong with the last suite is said before the first begins; a row that one of them has is
// enough.
TEST_F(Lab, SeveralSuitesAreCheckedBeforeTheFirstBegins) {
  write_rows({"fine", "crash"});
  stand_in("");
  write_file_atomically(folder_ / "even.yaml",
                        "suite: even\ndevice: a100-80\nmodels: {tiny: {config: " + tiny_config() +
                            "}}\nset: {data: Synthetic, train.max_seq_length: 64}\n"
                            "rows: [{id: other, model: tiny}]\n");
  const test::Environment program("SNUG_LAB_PROGRAM", (folder_ / "program").string());
  const auto plan = [&](const Words& more) {
    Words all{"lab",    "run",       folder_ / "odd.yaml", folder_ / "even.yaml",
              "--plan", "--out_dir", out().string()};
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  };
  const Result none = plan({"--rows", "fine,nobody*"});
  EXPECT_EQ(none.exit_code, 2) << none.output;
  EXPECT_NE(none.output.find("none of odd, even has no row nobody*"), std::string::npos)
      << none.output;
  EXPECT_FALSE(fs::exists(out()));
  const Result one = plan({"--rows", "fine"});
  EXPECT_EQ(one.exit_code, 0) << one.output;
  EXPECT_TRUE(fs::exists(out() / "odd-plan/rows/fine/row.json"));
  EXPECT_FALSE(fs::exists(out() / "even-plan"));
}

TEST_F(Lab, ASuiteThatIsNamedTwiceRunsOnce) {
  write_rows({"fine"});
  const test::Environment program("SNUG_LAB_PROGRAM", (folder_ / "program").string());
  stand_in("");
  const Result twice = run({"lab", "run", folder_ / "odd.yaml", folder_ / "odd.yaml", "--plan",
                            "--out_dir", out().string()});
  EXPECT_EQ(twice.exit_code, 0) << twice.output;
}

TEST_F(Lab, OnAnotherDeviceNothingIsHeldAgainstWhatWasPublished) {
  write_suite("rows: [{id: fine, model: tiny, expect: oom}]\n");
  stand_in("");
  const test::Environment program("SNUG_LAB_PROGRAM", (folder_ / "program").string());
  const Words plan{"lab", "run", folder_ / "odd.yaml", "--plan", "--out_dir", out().string()};
  EXPECT_EQ(run(plan).exit_code, 2) << "it fits and is said not to";
  Words elsewhere = plan;
  elsewhere.insert(elsewhere.end(), {"--device", "rtx-4090"});
  const Result result = run(elsewhere);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(result.output.find("differs"), std::string::npos) << result.output;
}

// The budget of plans is no budget of runs, which is said; rows for the processor need no GPU.
TEST_F(Lab, ABudgetThatRunsDoNotHoldToIsSaidOnce) {
  write_suite(
      "rows:\n  - {id: a, model: tiny, memory_budget: 40MiB, set: {accelerator: cpu}}\n"
      "  - {id: b, from: a}\n");
  stand_in("");
  const test::Environment program("SNUG_LAB_PROGRAM", (folder_ / "program").string());
  const Words words{"lab", "run", folder_ / "odd.yaml", "--out_dir", out().string()};
  const Result result = run(words);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("memory_budget of 2 rows (a: 40MiB) is of plans"), std::string::npos)
      << result.output;
  EXPECT_EQ(result.output.find("no GPU here"), std::string::npos) << result.output;
  Words held = words;
  held.insert(held.end(), {"--memory_budget", "64MiB"});
  EXPECT_EQ(run(held).output.find("is of plans"), std::string::npos);
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
  EXPECT_NE(result.output.find("the same command goes on"), std::string::npos) << result.output;
  EXPECT_EQ(row("fine")["outcome"], "ok");
  EXPECT_FALSE(has_row("last"));
  fs::remove(out() / "rows/fills/run/filler");
  stand_in("");
  forget_calls();
  EXPECT_EQ(lab().exit_code, 0);
  EXPECT_EQ(calls(), (std::map<std::string, int>{{"fills", 1}, {"last", 1}}));
}

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
  bool put(const char* file, const char* text = "209715200") const {
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

// The program itself, small enough for seconds: one row really runs out of its budget.
TEST_F(Lab, ARealSuiteMeasuresWhatItPlanned) {
  write_suite(
      "rows:\n"
      "  - {id: plain, title: Plain, model: tiny, set: {train.global_batch_size: 4, "
      "train.micro_batch_size: 4}, expect: ok}\n"
      "  - {id: large, title: Large, from: plain, set: {train.global_batch_size: 16, "
      "train.micro_batch_size: 16}, expect: oom}\n"
      "  - {id: split, title: Accumulated, from: large, set: {train.micro_batch_size: 4}, "
      "expect: "
      "ok}\n");
  const auto lab_words = [&](const std::string& budget) {
    return words({"--memory_budget", budget, "--set", "num_threads=1", "--row_timeout", "600"});
  };
  // Between what the split row and the large one take, so that the test knows no sizes.
  const Result wide = run(lab_words("1GiB"));
  ASSERT_NE(wide.exit_code, 1) << wide.output;
  const int64_t split = row("split")["measured"]["peak_allocated"];
  const int64_t large = row("large")["measured"]["peak_allocated"];
  ASSERT_GT(large, split + split / 10) << wide.output;
  const Result tight = run(lab_words(std::to_string((split + large) / 2)));
  EXPECT_EQ(tight.exit_code, 0) << tight.output;
  EXPECT_EQ(row("plain")["outcome"], "ok");
  EXPECT_EQ(row("split")["outcome"], "ok");
  EXPECT_EQ(row("large")["outcome"], "oom") << row("large");
  EXPECT_NE(row("large")["reason"].get<std::string>().find("missing"), std::string::npos);
  EXPECT_FALSE(row("large")["predicted"]["fits"]);
  // On a CPU plans are true to the byte.
  for (const char* id : {"plain", "split"})
    EXPECT_EQ(row(id)["predicted"]["peak_allocated"], row(id)["measured"]["peak_allocated"]) << id;
  EXPECT_EQ(row("split")["losses"].size(), 3U);
  EXPECT_GT(row("split")["measured"]["after_forward"], 0);
  EXPECT_EQ(row("split")["predicted"]["after_forward"], row("split")["measured"]["after_forward"]);
  // A report can be made again from the folder alone.
  fs::remove(folder_ / "odd.yaml");
  fs::remove(out() / "report.html");
  EXPECT_EQ(run({"lab", "report", out()}).exit_code, 0);
  EXPECT_TRUE(fs::exists(out() / "report.html"));
  const Result compared = run({"lab", "compare", out(), out(), "--json"});
  EXPECT_EQ(compared.exit_code, 0) << compared.output;
  EXPECT_TRUE(json::accept(compared.output)) << compared.output;
}

}  // namespace
}  // namespace snug::tests
