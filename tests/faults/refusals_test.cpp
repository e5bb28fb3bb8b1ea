// Memory that is refused at any single allocation of a short run: the run ends with what it lacked,
// or takes the step again and comes to the same losses; and the same command then comes to the end
// that it would have come to.
//
// A few allocations of each scenario are drawn unless SNUG_REFUSALS asks for more: "all", or
// "1000:50", the 50 from the 1000th on.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "support/drawn_cases.h"
#include "support/programs.h"
#include "system/program.h"

namespace snug::tests {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

class Refusals : public ::testing::Test {
 protected:
  Words words(const Words& more) const {
    Words all = finetune_words(rows_, out_,
                               {"--train.max_steps", "3", "--train.save_interval", "2", "--resume",
                                "auto", "--num_threads", "1", "--eval.interval", "2"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Result run_refusing(int64_t number, const std::string& ledger, const Words& words) const {
    const test::Environment environment[]{{"SNUG_REFUSED", std::to_string(number)},
                                          {"SNUG_REFUSED_ON", ledger},
                                          {"SNUG_REFUSED_COUNT", count_}};
    return run(words, SNUG_REFUSING);
  }
  void refuse_each(const std::string& ledger, const Words& more);

  const TempFolder folder_;
  const fs::path rows_ = write_rows(folder_ / "rows.jsonl", 40), out_ = folder_ / "out",
                 count_ = folder_ / "count";

 private:
  std::string fault_of(const Result& result) const;
  void check(int64_t number, const std::string& ledger, const Words& words);

  std::vector<double> losses_;  // of an undisturbed run
  std::string model_;
  std::map<std::string, int> ends_;
};

// What is wrong with how the run ended; empty: nothing.
std::string Refusals::fault_of(const Result& result) const {
  for (const auto& entry : fs::recursive_directory_iterator(out_.parent_path())) {
    const std::string name = entry.path().filename();
    if (name.find(".tmp-") != name.npos || name.find(".new") != name.npos)
      return entry.path().string() + " is left";
  }
  // A micro-batch that was split adds up in another order.
  const bool is_there = fs::exists(out_ / "final");
  if (is_there && result.exit_code != 0 && read_file(out_ / "final/model.safetensors") != model_)
    return "final is another model";
  if (result.exit_code == 0) {
    const std::vector<double> found = losses(read_run(out_));
    if (found.size() != losses_.size()) return "another number of steps";
    for (size_t i = 0; i < found.size(); ++i)
      if (std::abs(found[i] - losses_[i]) > 1e-5) return fmt::format("another loss {}", found[i]);
    return "";
  }
  if (result.exit_code != 3) return fmt::format("exit code {}", result.exit_code);
  if (result.output.find("\nsnug: ") == std::string::npos && !result.output.starts_with("snug: "))
    return "no message";
  const bool has_record = fs::exists(out_ / "run.json");
  if (has_record && read_run(out_)["outcome"] != "oom") return "the record does not say so";
  return "";
}

void Refusals::check(int64_t number, const std::string& ledger, const Words& words) {
  fs::remove_all(out_);
  const Result result = run_refusing(number, ledger, words);
  ++ends_[result.exit_code == 0 ? "done all the same" : "out of memory"];
  std::string wrong = fault_of(result);
  Result next;
  if (wrong.empty() && result.exit_code != 0) {
    next = run(words);
    if (next.exit_code != 0)
      wrong = fmt::format("started again: exit code {}", next.exit_code);
    else if (losses(read_run(out_)) != losses_ ||
             read_file(out_ / "final/model.safetensors") != model_)
      wrong = "started again: other losses or weights";
  }
  EXPECT_EQ(wrong, "") << "allocation " << number << " of the " << ledger << "\n"
                       << result.output << next.output;
}

void Refusals::refuse_each(const std::string& ledger, const Words& more) {
  const Words command = words(more);
  const Result whole = run_refusing(0, ledger, command);
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  losses_ = losses(read_run(out_));
  model_ = read_file(out_ / "final/model.safetensors");
  const int64_t count = std::stoll(read_file(count_));
  ASSERT_GT(count, 50) << "these are allocations of a whole run";
  const char* wish = std::getenv("SNUG_REFUSALS");
  const std::string wanted = wish == nullptr ? "" : wish;
  if (wanted.empty()) {
    constexpr int64_t kDrawn = 6;
    const auto few = static_cast<size_t>((kDrawn + one_of() - 1) / one_of());
    const std::string what = fmt::format("allocations, {}", fmt::join(more, " "));
    for (const size_t i : drawn_of(static_cast<size_t>(count), few, what))
      check(static_cast<int64_t>(i) + 1, ledger, command);
  } else {
    const int64_t first = std::max(1, std::atoi(wanted.c_str()));
    const size_t colon = wanted.find(':');
    const int64_t last =
        colon == wanted.npos ? count : first + std::atoll(wanted.c_str() + colon + 1) - 1;
    for (int64_t number = first; number <= std::min(last, count); ++number)
      check(number, ledger, command);
  }
  std::string text;
  for (const auto& [end, number] : ends_) text += fmt::format(", {} {}", number, end);
  fmt::print("{} allocations of the {}{}\n", count, ledger, text);
}

TEST_F(Refusals, OfTheDevice) { refuse_each("device", {}); }

TEST_F(Refusals, OfTheHostWithAnOptimizerThere) {
  refuse_each("host", {"--optimizer_offload", "cpu"});
}

TEST_F(Refusals, AreSplitWhereThatIsAsked) { refuse_each("device", {"--train.on_oom", "split"}); }

}  // namespace
}  // namespace snug::tests
