// snug lab run, again and again: what it keeps, where it goes on, how searches and sweeps end. The
// last test runs the program itself.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "system/lab_with_stand_ins.h"

namespace snug::tests {
namespace {

using test::comes_true;
using test::is_running;
using test::read_process;

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
  EXPECT_NE(other.output.find("done earlier with other options or files"), std::string::npos)
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
  EXPECT_NE(said.find("1 of 3 rows are done; the same command continues"), std::string::npos)
      << said;
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
  EXPECT_EQ(run(plan).exit_code, 4) << "it fits and is said not to";
  Words elsewhere = plan;
  elsewhere.insert(elsewhere.end(), {"--device", "rtx-4090"});
  const Result result = run(elsewhere);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(result.output.find("differs"), std::string::npos) << result.output;
}

TEST_F(Lab, ADifferenceThatTheSuiteExplainsIsASuccess) {
  const test::Environment program("SNUG_LAB_PROGRAM", (folder_ / "program").string());
  const Words plan{"lab", "run", folder_ / "odd.yaml", "--plan", "--out_dir", out().string()};
  const std::string explained =
      "rows:\n- {id: fine, model: tiny, expect: oom, explained: too close to tell}\n";
  write_suite(explained);
  stand_in("");
  const Result result = run(plan);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("too close to tell"), std::string::npos) << result.output;
  write_suite(explained + "- {id: other, model: tiny, expect: oom}\n");
  EXPECT_EQ(run(plan).exit_code, 4) << "one that nobody explained is left";
  write_suite(explained +
              "- {id: other, model: tiny, expect: oom}\n"
              "- {id: wrong, model: tiny, set: {train.max_steps: 99}}\n");
  stand_in("", "case \"$*\" in *99*) exit 2;; esac; cat $here/fits.json; exit 0");
  EXPECT_EQ(run(plan).exit_code, 2) << "a wrong recipe is worse";
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
  EXPECT_NE(result.output.find("memory_budget of 2 rows (a: 40MiB) applies only to plans"),
            std::string::npos)
      << result.output;
  EXPECT_EQ(result.output.find("no GPU here"), std::string::npos) << result.output;
  Words held = words;
  held.insert(held.end(), {"--memory_budget", "64MiB"});
  EXPECT_EQ(run(held).output.find("applies only to plans"), std::string::npos);
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
  EXPECT_NE(row("large")["reason"].get<std::string>().find("exceed"), std::string::npos);
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
