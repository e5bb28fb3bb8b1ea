// From where a run's times count.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/text.h"
#include "system/program.h"

namespace snug::tests {
namespace {

using testing::HasSubstr, testing::Not, testing::StartsWith;

// A shell that has done other work before it replaces itself by the program is the same process.
TEST(Startup, CountsFromTheProgramsFirstInstruction) {
  const TempFolder folder;
  std::string command = "sleep 1; exec snug";
  for (const std::string& word : finetune_words(write_rows(folder / "rows.jsonl", 80),
                                                folder / "out", {"--train.max_steps", "1"}))
    command += " " + shell_quoted(word);
  const double before = monotonic_seconds();
  const Result result = run_in_shell("sh -c " + shell_quoted(command));
  const double whole = monotonic_seconds() - before;
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const nlohmann::json record = read_run(folder / "out");
  EXPECT_LE(record["seconds_total"], whole - 1);
  EXPECT_LE(record["startup_s"]["first_step_ended"], record["seconds_total"]);
  EXPECT_GT(record["startup_s"]["stages"]["program"], 0);
}

// What the OpenMP runtime of `VARIABLE=VALUE… snug --version` says of its settings.
std::string waits(const std::string& variables) {
  return run_in_shell("env -u GOMP_SPINCOUNT -u OMP_WAIT_POLICY OMP_DISPLAY_ENV=verbose " +
                      variables + " snug --version")
      .output;
}

TEST(Startup, ThreadsWaitForEachOtherBrieflyUnlessToldOtherwise) {
  EXPECT_THAT(waits(""), HasSubstr("GOMP_SPINCOUNT = '500'"));
  EXPECT_THAT(waits("GOMP_SPINCOUNT=77"), HasSubstr("GOMP_SPINCOUNT = '77'"));
  EXPECT_THAT(waits("OMP_WAIT_POLICY=active"), HasSubstr("OMP_WAIT_POLICY = 'ACTIVE'"));
  EXPECT_THAT(waits("OMP_WAIT_POLICY=active"), Not(HasSubstr("GOMP_SPINCOUNT = '500'")));
}

// The program starts itself again for that; nobody is to see it.
TEST(Startup, LooksLikeOneStart) {
  const Result own = run_in_shell("bash -c 'exec -a other snug plan /nowhere/model'");
  EXPECT_EQ(own.exit_code, 2);
  EXPECT_THAT(own.output, HasSubstr("/nowhere/model"));
  const Result through_the_linker =
      run_in_shell("/lib64/ld-linux-x86-64.so.2 \"$(command -v snug)\" --version");
  EXPECT_EQ(through_the_linker.exit_code, 0) << through_the_linker.output;
  EXPECT_THAT(through_the_linker.output, StartsWith("snug "));
}

}  // namespace
}  // namespace snug::tests
