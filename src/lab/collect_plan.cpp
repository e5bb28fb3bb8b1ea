// A row's figures as planned, from the JSON of `snug plan`: snug's own, and those counted for
// another program.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "lab/collect.h"

namespace snug::lab {
namespace {

using nlohmann::json;

Figures figures_of(const json& memory, bool fits) {
  return {.fits = fits,
          .peak_allocated = memory.value("peak_allocated", int64_t{0}),
          .peak_reserved = memory.value("peak_reserved", int64_t{0}),
          .after_forward = memory.value("after_forward", int64_t{0}),
          .by_category = memory.value("by_category", Bytes())};
}

std::vector<Moment> timeline_of(const json& moments) {
  std::vector<Moment> timeline;
  for (const json& moment : moments)
    timeline.push_back({.unit = moment.value("unit", ""),
                        .phase = moment.value("phase", ""),
                        .allocated = moment.value("allocated", int64_t{0}),
                        .by_category = moment.value("by_category", Bytes())});
  return timeline;
}

Figures predicted_figures(const json& plan) {
  const json& memory = plan.at("memory");
  const json& time = plan.at("time");
  Figures figures = figures_of(memory, plan.at("fits"));
  figures.peak_host = memory.value("offloaded_to_host", int64_t{0});
  figures.parameter_bytes = memory.value("parameter_bytes", int64_t{0});
  figures.step_seconds = time.value("step_seconds", 0.0);
  figures.tokens_per_second = time.value("tokens_per_second", 0.0);
  figures.model_flops_per_second = time.value("model_flops_per_second", 0.0);
  figures.share_of_peak = time.value("share_of_peak", 0.0);
  figures.device_use = time.value("busy_share", 0.0);
  figures.timeline = timeline_of(plan.at("timeline"));
  return figures;
}

Figures like_figures(const json& like) {
  Figures figures = figures_of(like, like.at("fits"));
  figures.peak_host = like.value("peak_host", int64_t{0});
  figures.reserved_ahead = like.value("reserved_ahead", int64_t{0});
  figures.parameter_bytes = like.value("weights", int64_t{0});
  figures.timeline = timeline_of(like.value("timeline", json::array()));
  return figures;
}

// What a figure of the other program means is not told by its name alone.
std::vector<std::string> notes_of(const json& like) {
  std::vector<std::string> notes;
  if (const std::string whose = like.value("whose", ""); !whose.empty())
    notes.push_back(fmt::format("counted as {}, {} x {} tokens, padded", whose,
                                like.value("micro_batch_size", 0),
                                like.value("tokens_per_sample", 0)));
  if (const int64_t paged = like.value("paged_states", int64_t{0}); paged > 0)
    notes.push_back(
        fmt::format("{} of optimizer states in paged memory, not included", format_bytes(paged)));
  if (const int64_t ahead = like.value("reserved_ahead", int64_t{0}); ahead > 0)
    notes.push_back(fmt::format(
        "without limit_all_gathers up to {} would be reserved, not included", format_bytes(ahead)));
  return notes;
}

// Of a plan that fits the device itself.
std::string missing_beside(const json& missing) {
  const int64_t in_host = missing.value("in_host", int64_t{0});
  return in_host > 0 ? fmt::format("{} of host memory missing", format_bytes(in_host))
                     : fmt::format("{} missing on the disk",
                                   format_bytes(missing.value("on_disk", int64_t{0})));
}

std::string why_plan_does_not_fit(const json& plan, int64_t limit) {
  if (const json missing = plan.value("missing", json::object());
      missing.value("on_device", int64_t{1}) == 0)
    return missing_beside(missing);
  const json& memory = plan.at("memory");
  const int64_t peak = memory.value("peak_allocated", int64_t{0});
  const int64_t reserved = memory.value("peak_reserved", int64_t{0});
  const int64_t missing =
      std::max(-plan.value("margin_bytes", int64_t{0}), std::max(peak, int64_t{1}) - limit);
  std::string text =
      fmt::format("{} missing: its peak is {}", format_bytes(missing), format_bytes(peak));
  if (plan.at("device").value("kind", "") == "cuda")
    text += fmt::format(" allocated, {} reserved", format_bytes(reserved));
  return text + fmt::format("; available: {}", format_bytes(limit));
}

bool is_blank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

// Of planning that ended in a way that says nothing of whether the row fits.
bool failed_to_plan(const std::string& text, const ProcessEnd& end, RowResult& result) {
  if (result.outcome == Outcome::TimedOut) {
    result.reason = "planning was " + result.reason;
  } else if (end.killed_by_kernel_for_memory) {
    result.outcome = Outcome::Crashed;
    result.reason = "the kernel killed the planning because the machine ran out of memory";
  } else if (result.outcome == Outcome::Ok || result.outcome == Outcome::OutOfMemory) {
    if (!is_blank(text)) return false;
    const std::string said = sentence_of(end);
    result.outcome = Outcome::Error;
    result.reason = fmt::format("planning exited with code {} and printed no plan{}", end.exit_code,
                                said.empty() ? "" : ": " + said);
  }
  return true;
}

}  // namespace

void collect_plan(const std::string& text, const ProcessEnd& end, RowResult& result) {
  judge_end(end, result);
  if (failed_to_plan(text, end, result)) return;
  try {
    const json plan = json::parse(text);
    result.predicted = predicted_figures(plan);
    result.limit_bytes = plan.at("device").value("usable_bytes", int64_t{0});
    result.device = plan.at("device").value("name", "");
    result.parameters = plan.at("model").value("parameters", int64_t{0});
    result.trained = plan.at("model").value("trained", int64_t{0});
    result.world_size = plan.value("ranks", 1);
    if (plan.at("device").value("kind", "") != "cuda") result.predicted->peak_reserved = 0;
    if (plan.contains("like")) {
      result.like = like_figures(plan["like"]);
      result.like_program = plan["like"].value("program", "");
      result.like_notes = notes_of(plan["like"]);
    }
    result.outcome = result.predicted->fits ? Outcome::Ok : Outcome::OutOfMemory;
    result.reason = result.predicted->fits ? "" : why_plan_does_not_fit(plan, result.limit_bytes);
  } catch (const json::exception& error) {
    result.predicted.reset();
    result.outcome = Outcome::Error;
    result.reason = fmt::format("the plan is not JSON of this version: {}", error.what());
  }
}

}  // namespace snug::lab
