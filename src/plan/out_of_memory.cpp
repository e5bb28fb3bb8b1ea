// SPDX-License-Identifier: Apache-2.0
#include "plan/out_of_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/bytes.h"
#include "plan/candidate.h"
#include "recipe/techniques/technique.h"

namespace snug::plan {
namespace {

std::map<std::string, int64_t> by_name(const memory::ByCategory& bytes) {
  std::map<std::string, int64_t> result;
  for (size_t c = 0; c < memory::kNumCategories; ++c)
    result[memory::name(static_cast<memory::Category>(c))] = bytes[c];
  return result;
}

// Adapters train with another command.
std::string with_suggestion(std::string command, const plan::Suggestion& suggestion) {
  static constexpr std::string_view kFull = " finetune_full ";
  const size_t at = command.find(kFull);
  if (suggestion.adds_adapters && at != std::string::npos)
    command.replace(at, kFull.size(), " finetune ");
  return command + " " + suggestion.options;
}

bool none_fits(const std::vector<plan::Suggestion>& suggestions) {
  return suggestions.empty() || !suggestions.front().fits;
}

// "1.40x the time": where steps have fewer tokens, of a token.
std::string factor_text(const plan::Suggestion& s) {
  const double factor = s.time_factor;
  if (factor == 0) return "";
  if (factor < 1.005 && factor > 0.995) return "as fast";
  const bool is_shorter = s.options.find("--train.max_seq_length") != s.options.npos;
  return fmt::format("{:.{}f}x the time{}", factor, factor < 10 ? 2 : 0,
                     is_shorter ? " a token" : "");
}

}  // namespace

PlanDoesNotFit plan_does_not_fit(const plan::Prediction& prediction, const TooMuch& bytes) {
  const int64_t missing = bytes.needed - bytes.there;
  report::OutOfMemoryRecord record{.phase = "plan",
                                   .unit = "",
                                   .category = "",
                                   .missing = missing,
                                   .allocated = prediction.peak_allocated + bytes.of_libraries,
                                   .by_category = by_name(prediction.by_category)};
  record.by_category[memory::name(memory::Category::Workspace)] += bytes.of_libraries;
  return {fmt::format(
              "the plan does not fit: its peak of {} exceeds {} {} by {} (--force trains anyway)",
              format_bytes(bytes.needed),
              bytes.is_budget ? "the budget of" : "the free memory of the device,",
              format_bytes(bytes.there), format_bytes(missing)),
          std::move(record)};
}

PlanDoesNotFit plan_needs_more_host(const plan::Prediction& prediction, at::DeviceType device,
                                    int64_t ranks, int64_t host_bytes) {
  const int64_t needed = plan::host_bytes_needed(prediction, device, ranks);
  report::OutOfMemoryRecord record{.phase = "plan",
                                   .unit = "",
                                   .category = "",
                                   .missing = needed - host_bytes,
                                   .allocated = needed,
                                   .by_category = by_name(prediction.host_by_category)};
  for (size_t c = 0; c < memory::kNumCategories; ++c) {
    int64_t& bytes = record.by_category[memory::name(static_cast<memory::Category>(c))];
    if (device == at::kCPU) bytes += prediction.by_category[c];
    bytes *= ranks;
  }
  return {fmt::format("the plan does not fit: the {} of host memory that it takes{}{} exceeds the "
                      "host_memory of {} by {} (--force trains anyway)",
                      format_bytes(needed), device == at::kCPU ? ", including the device's," : "",
                      ranks > 1 ? fmt::format(" for {} processes", ranks) : "",
                      format_bytes(host_bytes), format_bytes(needed - host_bytes)),
          std::move(record)};
}

report::OutOfMemoryRecord out_of_memory_record(const OutOfMemory& error) {
  if (const auto* plan = dynamic_cast<const PlanDoesNotFit*>(&error)) return plan->record();
  const auto* refused = dynamic_cast<const memory::RefusedAllocation*>(&error);
  if (refused == nullptr) return {};
  const memory::Refusal& refusal = refused->refusal();
  report::OutOfMemoryRecord record{.phase = memory::name(refusal.live.phase),
                                   .unit = memory::unit_name(refusal.live.unit),
                                   .category = memory::name(refusal.category),
                                   .requested = refusal.bytes,
                                   .missing = refusal.missing,
                                   .allocated = refusal.live.allocated,
                                   .by_category = by_name(refusal.live.by_category)};
  for (size_t unit = 0; unit < refusal.live.by_unit.size(); ++unit) {
    const memory::ByCategory& bytes = refusal.live.by_unit[unit];
    const int64_t total = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
    if (total > 0) record.by_unit[memory::unit_name(static_cast<int32_t>(unit))] = total;
  }
  return record;
}

std::vector<report::SuggestionRecord> suggestion_records(
    const std::vector<plan::Suggestion>& suggestions, const std::string& command) {
  std::vector<report::SuggestionRecord> records;
  for (const plan::Suggestion& s : suggestions)
    if (s.fits)
      records.push_back({.options = s.options,
                         .cost = s.cost,
                         .peak_allocated = s.peak_allocated,
                         .command = with_suggestion(command, s)});
  return records;
}

std::string suggestion_lines(const std::vector<plan::Suggestion>& suggestions) {
  size_t width = 0;
  for (const plan::Suggestion& s : suggestions) width = std::max(width, s.options.size());
  std::string text;
  bool says_other = false;
  for (const plan::Suggestion& s : suggestions) {
    if (!s.same_training && !says_other) text += "\n These change the training result:";
    says_other |= !s.same_training;
    text +=
        fmt::format("\n  {:<{}}  peak {:>10}", s.options, width, format_bytes(s.peak_allocated));
    if (s.host_bytes > 0) text += fmt::format("  host memory {:>10}", format_bytes(s.host_bytes));
    text += fmt::format("  {:>14}  ({}{})", factor_text(s), s.cost,
                        s.adds_adapters ? "; runs as snug finetune" : "");
  }
  return text;
}

std::string smallest_plan_text(const std::vector<plan::Suggestion>& suggestions) {
  if (suggestions.empty()) return "No option that snug knows makes it fit.";
  const plan::Suggestion& s = suggestions.front();
  return fmt::format(
      "No option that snug knows makes it fit: the smallest plan found takes {}{}, with {}",
      format_bytes(s.needed_on_device),
      s.host_bytes > 0 ? fmt::format(" and {} of host memory", format_bytes(s.host_bytes)) : "",
      s.options);
}

std::string suggestions_text(const std::vector<plan::Suggestion>& suggestions,
                             const std::string& command) {
  if (none_fits(suggestions)) return "\n" + smallest_plan_text(suggestions);
  return "\nWhat would fit, as planned; add one of these to the command:" +
         suggestion_lines(suggestions) + "\nThe whole command with the first of them:\n  " +
         with_suggestion(command, suggestions.front());
}

namespace {

std::string nearest_miss(const plan::Fit& fit, const plan::DeviceProfile& device) {
  if (!fit.smallest) return "";
  const plan::Prediction& p = fit.smallest->prediction;
  const bool on_cpu = device.kind == at::kCPU;
  std::string host;
  if (p.peak_host > 0) host = fmt::format(" and {} of host memory", format_bytes(p.peak_host));
  if (plan::missing(*fit.smallest, device).in_host > 0)
    host += fmt::format(", of which {} is available{}", format_bytes(device.host_bytes),
                        on_cpu ? " in all" : "");
  return fmt::format("\nThe smallest combination takes {}{}: {}",
                     format_bytes(on_cpu ? p.peak_allocated : p.peak_reserved), host,
                     fit.smallest->options.empty() ? "the recipe as it is" : fit.smallest->options);
}

std::string disk_advice(const plan::Fit& fit, const plan::DeviceProfile& device) {
  if (!fit.with_disk) return "";
  return fmt::format(
      "\nThere is not enough host memory; available: {}. With --fit_disk FOLDER, a folder on a "
      "disk with {} free, it would fit: {}",
      format_bytes(device.host_bytes), format_bytes(fit.with_disk->prediction.on_disk),
      fit.with_disk->options);
}

}  // namespace

std::string choice_reasons(const plan::Fit& fit, const recipe::Recipe& asked,
                           const plan::DeviceProfile& device) {
  if (!fit.best) return "";
  std::string text;
  if (fit.chose_disk(asked))
    text += fmt::format(
        "\nOptimizer states are on disk, as fit_disk allows: with the states in memory nothing "
        "fits into {} of host memory{}.",
        format_bytes(device.host_bytes > 0 ? device.host_bytes : device.assumed_host_bytes),
        device.host_bytes > 0 ? "" : ", which is assumed");
  if (plan::beyond_assumed_host(*fit.best, device) > 0)
    text += fmt::format(
        "\nNothing fits into the {} of host memory assumed for such a machine; set --host_memory "
        "to what it has.",
        format_bytes(device.assumed_host_bytes));
  for (const recipe::Technique& technique : recipe::techniques())
    if (!technique.changes_training.empty() && is_on(technique, fit.best->recipe) &&
        !is_on(technique, asked))
      text += fmt::format("\n{}", technique.changes_training);
  return text;
}

std::string why_none_fits(const plan::Fit& fit, const plan::DeviceProfile& device) {
  return nearest_miss(fit, device) + disk_advice(fit, device);
}

}  // namespace snug::plan
