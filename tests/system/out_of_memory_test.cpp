// Out of memory as a person meets it, wherever in a run it strikes: the same exit code, one clear
// error, a whole record, nothing half-written, and advice that can be pasted and works.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "system/program.h"

namespace snug::tests {
namespace {

using Words = std::vector<std::string>;
using nlohmann::json;

// Where runs were refused: "block 1, backward".
struct Places {
  std::set<std::string> seen;

  void add(const json& refusal) {
    const std::string unit = refusal["unit"];
    const std::string phase = refusal["phase"];
    const std::string what = phase == "setup" ? refusal["category"] : refusal["unit"];
    seen.insert(what + ", " + phase);
  }
};

void expect_whole_csv(const fs::path& path, size_t rows) {
  const std::string text = read_file(path);
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(text.back(), '\n');
  std::istringstream lines(text);
  size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), 10) << line;
  EXPECT_EQ(count, 1 + rows);
}

void expect_one_clear_error(const std::string& output) {
  const size_t at = output.find("snug: out of memory on cpu: ");
  ASSERT_NE(at, std::string::npos) << output;
  EXPECT_EQ(output.find("out of memory on", at + 20), std::string::npos) << output;
  for (const char* part :
       {" more for ", "do not fit into the budget of", " missing. Live: ", "Largest: "})
    EXPECT_NE(output.find(part, at), std::string::npos) << part << " in\n" << output;
  EXPECT_EQ(output.find("internal error"), std::string::npos) << output;
}

void expect_whole_record(const json& run, int64_t budget) {
  EXPECT_EQ(run["outcome"], "oom");
  EXPECT_EQ(run["device"]["budget_bytes"], budget);
  EXPECT_GT(run["memory"]["predicted"]["peak_allocated"], 0);
  const json& measured = run["memory"]["measured"];
  EXPECT_LE(measured["peak_allocated"].get<int64_t>(), budget);
  const json& refusal = run["out_of_memory"];
  ASSERT_TRUE(refusal.is_object()) << run.dump(1);
  const int64_t live = refusal["allocated"];
  EXPECT_EQ(live + refusal["requested"].get<int64_t>(), budget + refusal["missing"].get<int64_t>());
  int64_t categories = 0;
  for (const auto& [name, bytes] : refusal["by_category"].items())
    categories += bytes.get<int64_t>();
  EXPECT_EQ(categories, live);
  int64_t units = 0;
  for (const auto& [name, bytes] : refusal["by_unit"].items()) units += bytes.get<int64_t>();
  EXPECT_EQ(units, live);
}

class Budgets : public ::testing::Test {
 protected:
  // A Llama of two blocks. Untied, so that the embedding has gradients of its own on the way back.
  void SetUp() override { shape(json::object()); }
  void shape(const json& changes) const {
    json config = json::parse(read_file(tiny_checkpoint() + "/config.json"));
    config["tie_word_embeddings"] = false;
    config.update(changes);
    write_file_atomically(folder_ / "config.json", config.dump());
  }

  Words words(const fs::path& out_dir, const Words& more) const {
    Words all = finetune_words(
        rows_, out_dir, {"--model.config", folder_ / "config.json", "--train.max_steps", "2"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  int64_t plain_peak(const Words& more) const {
    const Result result = run(words(folder_ / "plain", more));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return read_run(folder_ / "plain")["memory"]["measured"]["peak_allocated"];
  }

  // One run that does not fit. Returns its record.
  json expect_refusal(int64_t budget, const Words& more) const {
    SCOPED_TRACE("budget " + std::to_string(budget));
    const fs::path out = folder_ / "tight";
    fs::remove_all(out);
    Words all = words(out, more);
    all.insert(all.end(), {"--memory_budget", std::to_string(budget), "--force"});
    const Result result = run(all);
    EXPECT_EQ(result.exit_code, 3) << result.output;
    expect_one_clear_error(result.output);
    json record = read_run(out);
    expect_whole_record(record, budget);
    const bool shows_phases = result.output.find("Memory by phase") != std::string::npos;
    EXPECT_TRUE(shows_phases) << result.output;
    const std::string where = record["out_of_memory"]["phase"];
    EXPECT_NE(result.output.find("  refused, " + where + " "), std::string::npos) << result.output;
    expect_whole_csv(out / "metrics.csv", record["steps"].size());
    std::set<std::string> left;
    for (const auto& entry : fs::directory_iterator(out)) left.insert(entry.path().filename());
    EXPECT_EQ(left, (std::set<std::string>{".lock", "live", "log.txt", "metrics.csv", "report.html",
                                           "run.json"}));
    const std::string log = read_file(out / "log.txt");
    EXPECT_NE(log.find("Memory by phase"), std::string::npos) << log;
    EXPECT_NE(log.find("snug: out of memory on cpu: "), std::string::npos) << log;
    EXPECT_TRUE(log.ends_with(" UTC  ended: oom\n")) << log;
    return record;
  }

  // From the peak down to `lowest` times it, or to the smallest budget that is taken. With a budget
  // below the highest level that a refused run reached, the next one is refused earlier; steps of 3
  // % at least keep the number of runs low.
  void walk_down(const Words& more, double lowest, Places& places) const {
    const int64_t peak = plain_peak(more);
    const auto last =
        std::max<int64_t>(1 << 16, static_cast<int64_t>(lowest * static_cast<double>(peak)));
    for (int64_t budget = peak - 1; budget > last;) {
      const json record = expect_refusal(budget, more);
      if (HasFailure()) return;
      places.add(record["out_of_memory"]);
      const int64_t reached = record["memory"]["measured"]["peak_allocated"];
      budget = std::min(reached - 1, budget * 97 / 100);
    }
  }

  const TempFolder folder_;
  const fs::path rows_ = write_rows(folder_ / "my rows.jsonl", 40);
};

TEST_F(Budgets, ARefusalAnywhereIsReportedWhole) {
  Places places;
  walk_down({"--train.micro_batch_size", "8"}, 0.45, places);  // activations count most
  shape({{"vocab_size", 4096}, {"hidden_size", 64}});          // the embedding's gradients do
  walk_down({"--train.micro_batch_size", "1"}, 0, places);
  std::string all;
  for (const std::string& place : places.seen) all += place + "\n";
  // The head makes its gradients while it has the logits, in forward, which is always higher than
  // its backward; updates need no memory beside their states.
  for (const char* place :
       {"parameters, setup", "optimizer, setup", "embedding, forward", "block 0, forward",
        "block 1, forward", "head, forward", "embedding, backward"})
    EXPECT_TRUE(places.seen.contains(place)) << place << " not among\n" << all;
  // Which block's way back is the highest depends on the processor's scratch for attention.
  EXPECT_TRUE(places.seen.contains("block 0, backward") ||
              places.seen.contains("block 1, backward"))
      << all;
}

// A run that is told what fits, and told so again by each suggestion, pasted as it stands.
TEST_F(Budgets, SuggestionsCanBePastedAndFit) {
  const fs::path recipe = folder_ / "my recipe.yaml";
  write_file_atomically(
      recipe,
      "optimizer:\n  class_path: torch.optim.AdamW\n  init_args:\n    betas: [0.9, 0.95]\n");
  const Words more{"--config", recipe, "--optimizer.weight_decay", "0.02"};
  const int64_t peak = plain_peak(more);
  std::set<std::string> tried;
  for (const int percent : {90, 60, 40}) {
    const int64_t budget = peak * percent / 100;
    const json record = expect_refusal(budget, more);
    for (const json& suggestion : record["out_of_memory"]["suggestions"]) {
      const std::string command = suggestion["command"];
      SCOPED_TRACE(command);
      EXPECT_LE(suggestion["peak_allocated"].get<int64_t>(), budget);
      if (!tried.insert(suggestion["options"]).second) continue;
      const Result result = run_in_shell(command);
      ASSERT_EQ(result.exit_code, 0) << result.output;
      const json run = read_run(folder_ / "tight");
      EXPECT_EQ(run["memory"]["predicted"]["peak_allocated"], suggestion["peak_allocated"]);
      EXPECT_LE(run["memory"]["measured"]["peak_allocated"], suggestion["peak_allocated"]);
      EXPECT_EQ(run["recipe"]["optimizer"]["lr"], 0.003);
      EXPECT_EQ(run["recipe"]["optimizer"]["weight_decay"], 0.02);
      if (run["recipe"]["optimizer"].contains("betas")) {
        EXPECT_EQ(run["recipe"]["optimizer"]["betas"], json({0.9, 0.95}));
      }
    }
  }
  EXPECT_GE(tried.size(), 7U);
}

}  // namespace
}  // namespace snug::tests
