// --profile true: the trace of a step is one that viewers read, and tells where the time went.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "system/ranks.h"

namespace snug::tests {
namespace {

using Json = nlohmann::json;

struct Trace {
  explicit Trace(const fs::path& file) : all(Json::parse(read_file(file))) {
    for (const Json& event : all["traceEvents"]) {
      if (event["ph"] == "X") spans.push_back(event);
      if (event["ph"] == "C") counters.push_back(event);
    }
  }
  static double begin(const Json& event) { return event["ts"]; }
  static double end(const Json& event) { return begin(event) + event["dur"].get<double>(); }
  std::vector<Json> named(const std::string& name) const {
    std::vector<Json> found;
    for (const Json& span : spans)
      if (span["name"] == name) found.push_back(span);
    return found;
  }
  // Microseconds that spans of the computation within [from, to] take, those inside others once.
  double covered(double from, double to) const {
    double sum = 0, until = from;
    for (const Json& span : in_order()) {
      if (span["cat"] != "computation" || span["args"]["phase"] == "step") continue;
      const double start = std::clamp(begin(span), until, to),
                   stop = std::clamp(end(span), until, to);
      sum += stop - start;
      until = std::max(until, stop);
    }
    return sum;
  }
  std::vector<Json> in_order() const {
    std::vector<Json> sorted = spans;
    std::ranges::stable_sort(sorted, [](const Json& a, const Json& b) {
      return begin(a) != begin(b) ? begin(a) < begin(b) : end(a) > end(b);
    });
    return sorted;
  }
  // In each thread a span lies inside the one around it or after it.
  void expect_nested() const {
    std::map<int, std::vector<double>> open;
    constexpr double kRounding = 1e-3;
    for (const Json& span : in_order()) {
      std::vector<double>& ends = open[span["tid"]];
      while (!ends.empty() && ends.back() <= begin(span) + kRounding) ends.pop_back();
      if (!ends.empty()) {
        EXPECT_LE(end(span), ends.back() + kRounding) << span;
      }
      ends.push_back(end(span));
    }
  }

  Json all;
  std::vector<Json> spans, counters;
};

std::vector<std::string> profiled(const fs::path& out_dir, std::vector<std::string> more) {
  std::vector<std::string> words = {
      "finetune_full",
      "--model.config",
      std::string(SNUG_SOURCE_DIR) + "/tests/data/parity/llama/config.json",
      "--data",
      "Synthetic",
      "--out_dir",
      out_dir.string(),
      "--profile",
      "true",
      "--precision",
      "32-true",
      "--num_threads",
      "1",
      "--train.micro_batch_size",
      "8",
      "--train.global_batch_size",
      "16",
      "--train.lr_warmup_steps",
      "0",
      "--train.max_steps",
      "3",
      "--train.save_model",
      "false"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(Profile, OfAStepHasEveryUnitAndTheTimeBetween) {
  const TempFolder folder;
  const Result ran = run(profiled(folder / "out", {"--activation_checkpointing", "all"}));
  ASSERT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_NE(ran.output.find("trace.json"), std::string::npos) << ran.output;
  const Json record = read_run(folder / "out");
  const Trace trace(folder / "out/trace.json");
  trace.expect_nested();
  ASSERT_EQ(trace.named("step 2").size(), 1U) << "not the first, which warms up";
  const Json step = trace.named("step 2")[0];
  const double measured = 1e6 * record["steps"][1]["seconds"].get<double>();
  EXPECT_LE(step["dur"].get<double>(), measured);
  EXPECT_GE(step["dur"].get<double>(), 0.5 * measured);
  EXPECT_GE(trace.covered(Trace::begin(step), Trace::end(step)), 0.5 * step["dur"].get<double>());
  for (const Json& span : trace.spans) {
    EXPECT_GE(Trace::begin(span), Trace::begin(step)) << span;
    EXPECT_LE(Trace::end(span), Trace::end(step) + 1e-3) << span;
  }
  // As often as there are micro-batches; each block is computed again inside its backward.
  std::map<std::string, std::set<std::string>> units;  // by phase
  std::map<std::string, size_t> times;
  for (const Json& span : trace.spans) {
    units[span["args"]["phase"]].insert(span["args"]["unit"].get<std::string>());
    ++times[span["name"]];
  }
  const std::set<std::string> before_head{"embedding", "block 0", "block 1"};
  EXPECT_EQ(units["recompute"], before_head);
  units["recompute"].insert("head");
  EXPECT_EQ(units["forward"], units["recompute"]);
  EXPECT_EQ(units["backward"], units["forward"]);
  for (const std::string& unit : units["forward"]) {
    EXPECT_EQ(times["forward " + unit], 2U) << unit;
    EXPECT_EQ(times["backward " + unit], 2U) << unit;
  }
  EXPECT_EQ(times["update"], 1U);
  // The ledger's bytes: never more than the run's peak, and as much as it somewhere in the step.
  int64_t highest = 0;
  for (const Json& counter : trace.counters) {
    if (counter["name"] != "device memory") continue;
    int64_t sum = 0;
    for (const auto& [category, bytes] : counter["args"].items()) sum += bytes.get<int64_t>();
    highest = std::max(highest, sum);
  }
  EXPECT_EQ(highest, record["memory"]["measured"]["peak_allocated"]);
}

TEST(Profile, OfRanksHasTheirCollectives) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const TempFolder folder;
  const Result ran = run(profiled(folder / "out", {"--devices", "2", "--strategy", "fsdp"}));
  ASSERT_EQ(ran.exit_code, 0) << ran.output;
  for (const char* rank : {"rank-0.json", "rank-1.json"}) {
    const Trace trace(folder / "out/trace" / rank);
    trace.expect_nested();
    std::map<std::string, int> collectives;
    for (const Json& span : trace.spans)
      if (span["cat"] == "collectives") ++collectives[span["args"]["phase"]];
    EXPECT_GT(collectives["all-gather"], 0) << rank;
    EXPECT_GT(collectives["reduce-scatter"], 0) << rank;
    EXPECT_EQ(trace.spans[0]["pid"], rank[5] - '0');
  }
}

}  // namespace
}  // namespace snug::tests
