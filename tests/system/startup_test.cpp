// From where a run's times count.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/text.h"
#include "system/program.h"

namespace snug::tests {
namespace {

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

}  // namespace
}  // namespace snug::tests
