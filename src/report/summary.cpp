// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include "base/bytes.h"
#include "base/text.h"
#include "report/tables.h"

namespace snug::report {
namespace {

using Lines = std::vector<std::pair<std::string, std::string>>;

std::string section(const char* title, const Lines& lines) {
  std::string out = fmt::format("| {}:\n", title);
  for (const auto& [name, value] : lines) out += fmt::format("| - {:<25} : {}\n", name, value);
  return out;
}

// LitGPT's Tok/sec counts padding; what a model learns from is the line below it.
Lines performance(const RunSummary& summary) {
  const double padded = summary.training_seconds > 0
                            ? static_cast<double>(summary.padded_tokens) / summary.training_seconds
                            : 0;
  Lines lines{{"Training Time", fmt::format("{:.2f} s", summary.training_seconds)},
              {"Tok/sec", fmt::format("{:.2f} tok/s", padded)},
              {"Tok/sec w/o Padding", fmt::format("{:.2f} tok/s", summary.tokens_per_second)}};
  if (summary.startup.first_step_ended > 0)
    lines.emplace_back("Start to First Step", fmt::format("{:.2f} s, to its end {:.2f} s",
                                                          summary.startup.first_step_begun,
                                                          summary.startup.first_step_ended));
  if (summary.share_of_peak > 0)
    lines.emplace_back("Share of peak FLOP/s",
                       fmt::format("{:.1f} %", 100 * summary.share_of_peak));
  return lines;
}

// LitGPT counts decimal gigabytes here, so that figures compare; GiB stands beside.
Lines memory(const RunSummary& summary) {
  const double bytes = static_cast<double>(summary.memory_bytes);
  Lines lines{{"Memory Used",
               fmt::format("{:.2f} GB ({})", bytes / 1e9, format_bytes(summary.memory_bytes))}};
  if (summary.predicted_bytes > 0 && summary.memory_bytes > 0)
    lines.emplace_back(
        "Planned", fmt::format("{} ({:+.2f} % off)", format_bytes(summary.predicted_bytes),
                               100 * (static_cast<double>(summary.predicted_bytes) / bytes - 1)));
  if (summary.budget_bytes > 0)
    lines.emplace_back("Budget",
                       fmt::format("{} ({:.1f} % used)", format_bytes(summary.budget_bytes),
                                   100 * bytes / summary.budget_bytes));
  return lines;
}

Lines validation(const RunSummary& summary) {
  Lines lines;
  if (summary.val_loss_before)
    lines.emplace_back("Before", fmt::format("{:.4f}", *summary.val_loss_before));
  if (summary.val_loss_after)
    lines.emplace_back("After", fmt::format("{:.4f}", *summary.val_loss_after));
  return lines;
}

}  // namespace

RunSummary summary_of(const RunRecord& record) {
  RunSummary s{
      .share_of_peak = record.speed.share_of_peak,
      .memory_bytes = record.memory.measured.peak_allocated,
      .budget_bytes = record.device.budget_bytes,
      .predicted_bytes = record.memory.predicted ? record.memory.predicted->peak_allocated : 0,
      .startup = record.startup,
      .notes = record.notes};
  for (const StepRecord& step : record.steps) {
    s.input_tokens += step.raw_tokens;
    s.tokens_with_prompt += step.tokens;
    s.padded_tokens += step.padded_tokens;
    s.training_seconds += step.seconds;
  }
  if (s.training_seconds > 0)
    s.tokens_per_second = static_cast<double>(s.tokens_with_prompt) / s.training_seconds;
  if (record.validation.empty()) return s;
  if (record.validation.front().step == 0) s.val_loss_before = record.validation.front().loss;
  s.val_loss_after = record.validation.back().loss;
  return s;
}

std::string summary_block(const RunSummary& summary) {
  const std::string rule = "| " + std::string(55, '-') + "\n";
  std::string out = rule;
  out +=
      section("Token Counts", {{"Input Tokens", with_commas(summary.input_tokens)},
                               {"Tokens w/ Prompt", with_commas(summary.tokens_with_prompt)},
                               {"Total Tokens (w/ Padding)", with_commas(summary.padded_tokens)}});
  out += rule + section("Performance", performance(summary));
  out += rule + section("Memory Usage", memory(summary));
  const Lines losses = validation(summary);
  if (!losses.empty()) out += rule + section("Validation Loss", losses);
  if (!summary.notes.empty()) out += rule;
  for (const std::string& note : summary.notes) out += fmt::format("| {}\n", note);
  return out + rule;
}

}  // namespace snug::report
