// The lab's suites scaled down to a CPU: one is run whole, of the others every row is planned. What
// a suite says of its rows (who runs out of memory, who takes less than whom) must come out.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "lab/result.h"
#include "lab/suite/suite.h"
#include "system/program.h"

namespace snug::tests {
namespace {

using lab::Comparison;
using lab::Expected;
using lab::Mode;
using lab::Outcome;
using lab::Row;

fs::path suite_file(const std::string& name) {
  return fs::path(SNUG_SOURCE_DIR) / "recipes/lab" / (name + ".yaml");
}

// Whether the memory of `row` compares with that of `than` as the suite says.
void expect_comparison(const Comparison& comparison, const std::string& row, double bytes,
                       double than) {
  using Relation = Comparison::Relation;
  const std::string what = row + " beside " + comparison.than;
  switch (comparison.relation) {
    case Relation::Less:
      EXPECT_LT(bytes, than) << what;
      break;
    case Relation::More:
      EXPECT_GT(bytes, than) << what;
      break;
    case Relation::Same:
      EXPECT_NEAR(bytes, than, 0.1 * than) << what;
      break;
  }
}

// `peaks` by row; rows that were not looked at have none. Time is left out: on a busy machine it
// says nothing.
void expect_comparisons(const std::vector<Row>& rows, const std::map<std::string, double>& peaks) {
  for (const Row& row : rows)
    for (const Comparison& comparison : row.comparisons) {
      const auto own = peaks.find(row.id), other = peaks.find(comparison.than);
      if (comparison.quantity != Comparison::Quantity::Memory || own == peaks.end() ||
          other == peaks.end())
        continue;
      expect_comparison(comparison, row.id, own->second, other->second);
    }
}

TEST(ScaledSuite, RunsWholeAndComesOutAsPublished) {
  const TempFolder folder;
  const std::string out_dir = folder / "lab";
  const Result ran = run({"lab", "run", suite_file("litgpt-single"), "--scaled", "--rows", "ls*",
                          "--out_dir", out_dir});
  ASSERT_EQ(ran.exit_code, 0) << ran.output;
  fs::path results = out_dir;
  if (!fs::exists(results / "lab.json")) results /= "litgpt-single-scaled";
  const lab::LabRun lab = lab::read_lab_run(results);
  ASSERT_EQ(lab.rows.size(), 14U);
  std::map<std::string, double> peaks;
  for (const Row& row : lab.rows) {
    const lab::RowResult& result = *lab.find(row.id);
    ASSERT_NE(row.expected, Expected::Unknown) << row.id;
    EXPECT_EQ(result.outcome, row.expected == Expected::Ok ? Outcome::Ok : Outcome::OutOfMemory)
        << row.id << ": " << result.reason;
    ASSERT_TRUE(result.predicted) << row.id;
    const auto predicted = static_cast<double>(result.predicted->peak_allocated);
    peaks[row.id] = predicted;
    if (result.outcome != Outcome::Ok) {
      EXPECT_GT(predicted, static_cast<double>(result.limit_bytes)) << row.id;
      continue;
    }
    ASSERT_TRUE(result.measured) << row.id;
    EXPECT_NEAR(static_cast<double>(result.measured->peak_allocated), predicted, 0.005 * predicted)
        << row.id;
    ASSERT_FALSE(result.losses.empty()) << row.id;
  }
  expect_comparisons(lab.rows, peaks);
}

// Standard output alone: of a plan that does not fit, what is said about it stands elsewhere.
Result printed_by(const std::vector<std::string>& words) {
  std::string command = "snug";
  for (const std::string& word : words) command.append(" '").append(word).append("'");
  return run_in_shell(command + " 2>/dev/null");
}

// A plan's exit code says whether the row fits its budget.
class PlannedSuite : public testing::TestWithParam<const char*> {};

TEST_P(PlannedSuite, ComesOutAsPublished) {
  const lab::Suite suite = lab::read_suite(suite_file(GetParam()));
  std::map<std::string, double> peaks;
  for (const Row& row : suite.rows) {
    if (!row.not_run.empty()) continue;
    const Result planned = printed_by(lab::plan_words(suite, row, Mode::Scaled, {}));
    ASSERT_TRUE(planned.exit_code == 0 || planned.exit_code == 3) << row.id;
    const auto plan = nlohmann::json::parse(planned.output, nullptr, false);
    ASSERT_TRUE(plan.is_object()) << planned.output;
    peaks[row.id] = plan["memory"]["peak_allocated"];
    if (row.expected == Expected::Unknown) continue;
    EXPECT_EQ(plan["fits"].get<bool>(), row.expected == Expected::Ok)
        << row.id << " takes " << peaks[row.id] / (1 << 20) << " MiB of "
        << row.scaled_memory_budget;
    // A budget that a row just meets or misses is not one to show anything by.
    const double budget = peaks[row.id] + plan["margin_bytes"].get<double>();
    EXPECT_GT(std::abs(peaks[row.id] / budget - 1), 0.03) << row.id;
  }
  expect_comparisons(suite.rows, peaks);
}

INSTANTIATE_TEST_SUITE_P(Lab, PlannedSuite,
                         testing::Values("litgpt-single", "litgpt-multi", "litgpt-v100",
                                         "blip2-single", "blip2-multi", "blip2-peft", "fsdp-sweep",
                                         "techniques"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace snug::tests
