// What keepers note, what is concluded from it, and how rank 0's words travel.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <csignal>
#include <random>

#include "base/files.h"
#include "report/run_record.h"
#include "support/temp_folder.h"
#include "train/launch/relay.h"
#include "train/launch/verdict.h"

namespace snug::launch {
namespace {

using test::TempFolder;

RankRecord record(int rank, Ending ending, const std::string& text = "") {
  const int exit_code = ending == Ending::OutOfMemory ? 3 : ending == Ending::UserError ? 2 : 1;
  return {.job = "j",
          .rank = rank,
          .host = "node1",
          .process = 100 + rank,
          .ending = ending,
          .exit_code = ending == Ending::Running || ending == Ending::Done ? 0 : exit_code,
          .text = text};
}

bool has(const Verdict& verdict, const std::string& part) {
  return verdict.message.find(part) != std::string::npos;
}

TEST(Records, AreReadBack) {
  const TempFolder folder;
  RankRecord written = record(3, Ending::Killed, "caf\xe9 \"quoted\"\n");
  written.signal = SIGSEGV;
  written.activity = "step 12";
  ASSERT_TRUE(write_record(folder.path(), written));
  const auto read = read_record(folder.path(), 3, "j");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->ending, Ending::Killed);
  EXPECT_EQ(read->signal, SIGSEGV);
  EXPECT_EQ(read->process, 103);
  EXPECT_EQ(read->activity, "step 12");
  EXPECT_FALSE(read_record(folder.path(), 3, "another"));
  EXPECT_FALSE(read_record(folder.path(), 2, "j"));
  const int64_t before = touched_at(folder.path(), 3);
  touch_record(folder.path(), 3);
  EXPECT_GT(touched_at(folder.path(), 3), before);
  clear_folder(folder.path());
  EXPECT_FALSE(read_record(folder.path(), 3, "j"));
}

TEST(Verdict, NamesTheRankThatFailedAndNotThoseThatLostIt) {
  const TempFolder out;
  const Verdict verdict = judge({record(0, Ending::Communication, "rank 2 is gone"),
                                 record(1, Ending::Running), record(2, Ending::Killed)},
                                out.path(), false);
  EXPECT_EQ(verdict.exit_code, 1);
  EXPECT_EQ(verdict.rank, 2);
  for (const char* part : {"rank 2 of 3 (node1, process 102)", "was killed by", "rank-2.log"})
    EXPECT_TRUE(has(verdict, part)) << part << " in\n" << verdict.message;
}

TEST(Verdict, IsNotOfTheRankThatAWatchdogAborted) {
  const TempFolder out;
  RankRecord aborted = record(0, Ending::Killed), killed = record(2, Ending::Killed);
  aborted.signal = SIGABRT;
  killed.signal = SIGKILL;
  const RankRecord lost = record(1, Ending::Communication, "rank 2 is gone");
  EXPECT_EQ(judge({aborted, lost, killed}, out.path(), false).rank, 2);
  killed.ending = Ending::Stopped;
  EXPECT_EQ(judge({aborted, lost, killed}, out.path(), false).rank, 0) << "it is the only one";
}

TEST(Verdict, KeepsTheExitCodeOfTheError) {
  const TempFolder out;
  const Verdict verdict =
      judge({record(0, Ending::Communication, "rank 1 is gone"),
             record(1, Ending::OutOfMemory, "12 MiB missing"), record(2, Ending::Killed)},
            out.path(), false);
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_TRUE(verdict.out_of_memory);
  EXPECT_TRUE(has(verdict, "12 MiB missing")) << verdict.message;
}

TEST(Verdict, WhatAllFoundIsNoRanksFault) {
  const TempFolder out;
  const Verdict verdict = judge(
      {record(0, Ending::UserError, "no such file"), record(1, Ending::UserError, "no such file")},
      out.path(), false);
  EXPECT_EQ(verdict.message, "no such file");
  EXPECT_EQ(verdict.exit_code, 2);
  EXPECT_FALSE(verdict.rank);
}

TEST(Verdict, SaysWhereToGoOnFrom) {
  const TempFolder out;
  const Records records{record(0, Ending::Running), record(1, Ending::Killed)};
  EXPECT_TRUE(has(judge(records, out.path(), false), "no checkpoint"));
  for (const char* name : {"step-000002", "step-000010"})
    std::filesystem::create_directory(out / name);
  const Verdict verdict = judge(records, out.path(), false);
  EXPECT_TRUE(has(verdict, "--resume auto resumes from " + (out / "step-000010").string()))
      << verdict.message;
}

TEST(Verdict, AStopOnRequestIsNoFailureOfARank) {
  const TempFolder out;
  RankRecord ended = record(0, Ending::Killed);
  ended.signal = SIGINT;
  const Verdict verdict = judge({ended, std::nullopt}, out.path(), true);
  EXPECT_EQ(verdict.exit_code, 130);
  EXPECT_TRUE(has(verdict, "on request"));
  ended.signal = SIGSEGV;
  EXPECT_TRUE(has(judge({ended, std::nullopt}, out.path(), true), "Please report"));
}

TEST(Verdict, RunsThatWentWellAreNotSpokenOf) {
  const TempFolder out;
  const Records records{record(0, Ending::Done), record(1, Ending::Done)};
  EXPECT_TRUE(all_done(records));
  EXPECT_EQ(judge(records, out.path(), false).exit_code, 0);
  EXPECT_FALSE(all_done({record(0, Ending::Done), std::nullopt}));
}

TEST(RunJson, GetsTheReasonThatRankZeroCouldNotWrite) {
  const TempFolder out;
  report::RunRecord run;
  run.outcome = "unfinished";
  report::write_run_json(run, out / "run.json");
  const RunJson of_an_earlier_run(out.path());
  Verdict verdict{.exit_code = 1, .message = "rank 0 was killed", .rank = 0};
  of_an_earlier_run.amend(verdict);
  EXPECT_EQ(report::read_run_json(out / "run.json").outcome, "unfinished");

  std::filesystem::remove(out / "run.json");
  const RunJson of_this_run(out.path());
  report::write_run_json(run, out / "run.json");
  of_this_run.amend(verdict);
  EXPECT_EQ(report::read_run_json(out / "run.json").outcome, "error");
  EXPECT_EQ(report::read_run_json(out / "run.json").reason, "rank 0 was killed");

  run.outcome = "ok";  // killed in its last breath
  report::write_run_json(run, out / "run.json");
  of_this_run.amend(verdict);
  EXPECT_EQ(report::read_run_json(out / "run.json").outcome, "error");

  run.outcome = "oom";
  run.reason = "its own";
  report::write_run_json(run, out / "run.json");
  of_this_run.amend(verdict);
  EXPECT_EQ(report::read_run_json(out / "run.json").reason, "its own");
  verdict.rank = 1;
  of_this_run.amend(verdict);
  EXPECT_EQ(report::read_run_json(out / "run.json").outcome, "error");
}

TEST(Frames, ComeOutAsTheyWentInHoweverTheyAreCut) {
  std::mt19937 random(7);
  std::string stream, out, error;
  for (int i = 0; i < 200; ++i) {
    std::string bytes(random() % 50, ' ');
    for (char& byte : bytes) byte = static_cast<char>(random() % 256);
    const bool is_error = random() % 2 == 0;
    (is_error ? error : out) += bytes;
    stream += framed(is_error ? Channel::Error : Channel::Out, bytes);
    if (i % 20 == 0) stream += "Welcome to node7!\n";
  }
  FrameReader reader;
  std::string got_out, got_error;
  for (size_t at = 0; at < stream.size();) {
    const size_t length = std::min<size_t>(stream.size() - at, 1 + random() % 30);
    reader.take(std::string_view(stream).substr(at, length),
                [&](Channel channel, std::string_view bytes) {
                  (channel == Channel::Error ? got_error : got_out) += bytes;
                });
    at += length;
  }
  EXPECT_EQ(got_out, out);
  EXPECT_EQ(got_error, error);
}

TEST(PlainLines, KeepWhatWasLastOnTheScreen) {
  PlainLines lines;
  EXPECT_EQ(lines.take("Model\n\r\x1b[?7l\x1b[32mstep 1\x1b[0m\x1b[K\x1b[?7h"), "Model\n");
  EXPECT_EQ(lines.take("\r\x1b[?7lstep 2\x1b[K\x1b[?7h"), "");
  EXPECT_EQ(lines.take("\r\x1b[KCheckpoint\n\rstep"), "Checkpoint\n");
  EXPECT_EQ(lines.take(" 3"), "");
  EXPECT_EQ(lines.rest(), "step 3\n");
  EXPECT_EQ(lines.rest(), "");
}

}  // namespace
}  // namespace snug::launch
