// SPDX-License-Identifier: Apache-2.0
#include "lab/collect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "lab/report/figures.h"
#include "recipe/gpus.h"
#include "report/run_record.h"
#include "report/tables.h"
#include "watch/machine/machine.h"

namespace snug::lab {
namespace {

constexpr int kOutOfMemoryCode = 3;

std::string signal_text(int number) {
  const char* abbreviation = ::sigabbrev_np(number);
  const char* description = ::sigdescr_np(number);
  return fmt::format("signal {} (SIG{}, {})", number, abbreviation == nullptr ? "?" : abbreviation,
                     description == nullptr ? "?" : description);
}

}  // namespace

std::string sentence_of(const ProcessEnd& end) {
  std::string line = first_line(end.last_words);
  if (line.starts_with("snug: ")) line.erase(0, 6);
  return line;
}

bool speaks_of_full_disk(const std::string& text) {
  return text.find("No space left on device") != text.npos ||
         text.find("Disk quota exceeded") != text.npos || text.find("File too large") != text.npos;
}

void judge_end(const ProcessEnd& end, RowResult& result) {
  const std::string said = sentence_of(end);
  const std::string words = said.empty() ? "" : ": " + said;
  if (end.interrupted) {
    result.outcome = Outcome::Interrupted;
    result.reason = "stopped on request";
  } else if (end.timed_out) {
    result.outcome = Outcome::TimedOut;
    result.reason = fmt::format("stopped after {:.0f} s, the time limit of a row", end.seconds);
  } else if (end.killed_by_kernel_for_memory) {
    result.outcome = Outcome::OutOfMemory;
    result.reason = "the kernel killed it because the machine ran out of memory";
  } else if (end.signal != 0) {
    result.outcome = Outcome::Crashed;
    result.reason = fmt::format("killed by {}{}", signal_text(end.signal), words);
  } else if (end.exit_code == kOutOfMemoryCode) {
    result.outcome = Outcome::OutOfMemory;
    result.reason = said.empty() ? "out of memory" : said;
  } else if (end.exit_code == 0) {
    result.outcome = Outcome::Ok;
    result.reason.clear();
  } else {
    result.outcome = Outcome::Error;
    result.reason = said.empty() ? fmt::format("exit code {}", end.exit_code) : said;
    if (speaks_of_full_disk(end.last_words)) result.reason = "the disk is full: " + result.reason;
  }
}

// A row's figures as planned, from the JSON of `snug plan`: snug's own, and those counted for
// another program.

namespace {

using nlohmann::json;

Figures figures_of(const json& memory, bool fits) {
  return {.fits = fits,
          .peak_allocated = memory.value("peak_allocated", int64_t{0}),
          .peak_reserved = memory.value("peak_reserved", int64_t{0}),
          .num_alloc_retries = memory.value("num_alloc_retries", 0.0),
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
  if (plan.contains("batch"))
    figures.tokens_per_epoch = plan["batch"].value("tokens_per_epoch", int64_t{0});
  figures.timeline = timeline_of(plan.at("timeline"));
  return figures;
}

Figures like_figures(const json& like) {
  Figures figures = figures_of(like, like.at("fits"));
  figures.peak_host = like.value("peak_host", int64_t{0});
  figures.step_seconds = like.value("step_seconds", 0.0);
  figures.parameter_bytes = like.value("weights", int64_t{0});
  figures.timeline = timeline_of(like.value("timeline", json::array()));
  return figures;
}

// Notes on how to read the figures of the other program.
std::vector<std::string> notes_of(const json& like) {
  std::vector<std::string> notes;
  if (const std::string whose = like.value("whose", ""); !whose.empty())
    notes.push_back(fmt::format("counted as {}, {} x {} tokens, padded", whose,
                                like.value("micro_batch_size", 0),
                                like.value("tokens_per_sample", 0)));
  if (const int64_t paged = like.value("paged_states", int64_t{0}); paged > 0)
    notes.push_back(
        fmt::format("{} of optimizer states in paged memory, not included", format_bytes(paged)));
  return notes;
}

// For a plan that fits the device, but not host or disk.
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

// For planning that failed, which does not show whether the row fits.
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

// A row's figures as measured, from the run.json that its run left.

namespace {

double finite(double value) { return std::isfinite(value) ? value : 0; }

Bytes by_category(const report::PhaseRecord& phase) {
  return {{"parameters", phase.parameters},
          {"gradients", phase.gradients},
          {"optimizer", phase.optimizer_device},
          {"activations", phase.activations},
          {"workspace", phase.workspace},
          {"communication", phase.communication},
          {"data", phase.data}};
}

Figures measured_figures(const report::RunRecord& record) {
  const report::MemoryPeaks& peaks = record.memory.measured;
  Figures figures{.fits = record.outcome == "ok",
                  .peak_allocated = peaks.peak_allocated,
                  .peak_reserved = peaks.peak_reserved,
                  .peak_host = peaks.peak_host,
                  .by_category = peaks.by_category,
                  .step_seconds = finite(report::statistics_of(record.steps).median_seconds),
                  .tokens_per_second = finite(record.speed.tokens_per_second),
                  .model_flops_per_second = finite(record.speed.model_flops_per_second),
                  .share_of_peak = finite(record.speed.share_of_peak),
                  .tokens_per_epoch = record.tokens_per_epoch};
  if (!record.steps.empty())
    figures.num_alloc_retries = static_cast<double>(report::summary_of(record).num_alloc_retries) /
                                static_cast<double>(report::num_steps(record.steps));
  for (const report::RankMemoryRecord& rank : record.ranks)
    figures.peak_allocated = std::max(figures.peak_allocated, rank.peak_allocated);
  for (const report::PhaseRecord& phase : record.memory.phases) {
    if (phase.phase == "after_fwd")
      figures.after_forward = std::max(figures.after_forward, phase.allocated);
    if (phase.phase == "before_fwd")
      figures.parameter_bytes = std::max(figures.parameter_bytes, phase.parameters);
  }
  return figures;
}

// "block 3, backward: 1.62 GiB in use + 512.00 MiB gradients exceed the 2.00 GiB budget by …".
std::string who_asked(const report::OutOfMemoryRecord& record, int64_t budget) {
  if (record.requested == 0) return "";
  const std::string limit =
      budget > 0 ? fmt::format("the {} budget", format_bytes(budget)) : "what there is";
  return fmt::format("{}, {}: {} in use + {} {} exceed {} by {}",
                     record.unit.empty() ? "the run" : record.unit, record.phase,
                     format_bytes(record.allocated), format_bytes(record.requested),
                     record.category, limit, format_bytes(record.missing));
}

// Whether a run's device is a GPU: one by its name, or one that this machine has.
bool is_gpu(const std::string& device) {
  if (recipe::gpu_by_cuda_name(device) != nullptr) return true;
  const machine::Gpus here = machine::gpus();
  return std::any_of(here.gpus.begin(), here.gpus.end(), [&](const machine::Gpu& gpu) {
    return !gpu.name.empty() && device.starts_with(gpu.name);
  });
}

// Replaces the earlier plan by the run's own, for its real data and device; of several ranks, the
// one that needs most, as for measured figures.
void take_own_plan(const report::RunRecord& record, RowResult& result) {
  if (!record.memory.predicted) return;
  if (!result.predicted) result.predicted = Figures();
  result.predicted->peak_allocated = record.memory.predicted->peak_allocated;
  for (const report::RankMemoryRecord& rank : record.ranks)
    result.predicted->peak_allocated =
        std::max(result.predicted->peak_allocated, rank.predicted_allocated);
  result.predicted->by_category = record.memory.predicted->by_category;
  if (result.limit_bytes > 0)
    result.predicted->fits = std::max(result.predicted->peak_allocated,
                                      result.predicted->peak_reserved) <= result.limit_bytes;
}

void take_record(const report::RunRecord& record, RowResult& result) {
  result.measured = measured_figures(record);
  result.measured->device_use = finite(record.speed.steps.mean_utilization);
  result.measured->device_use_spread = finite(record.speed.steps.utilization_deviation);
  // What the allocator reserves on a CPU is not what a device would need.
  if (!is_gpu(record.device.name)) result.measured->peak_reserved = 0;
  if (record.device.budget_bytes > 0) result.limit_bytes = record.device.budget_bytes;
  take_own_plan(record, result);
  result.device = record.device.name;
  result.world_size = record.world_size;
  result.parameters = record.model.parameters;
  result.trained = record.model.trainable;
  for (const report::StepRecord& step : record.steps)
    if (std::isfinite(step.loss)) result.losses.push_back({step.step, step.loss});
  for (const report::PhaseRecord& phase : record.memory.phases) {
    if (phase.micro_batch > 1) continue;  // the first one stands for a step
    result.phases.push_back({.step = phase.step,
                             .phase = phase.phase,
                             .by_category = by_category(phase),
                             .allocated = phase.allocated,
                             .peak = phase.peak,
                             .reserved = phase.reserved});
  }
}

}  // namespace

void collect_run(const std::filesystem::path& out_dir, const ProcessEnd& end, RowResult& result) {
  judge_end(end, result);
  report::RunRecord record;
  try {
    record = report::read_run_json(out_dir / "run.json");
  } catch (const UserError& error) {
    if (result.outcome != Outcome::Ok) return;
    result.outcome = Outcome::Error;
    result.reason = fmt::format("it exited with code 0 but left no record: {}", error.what());
    return;
  }
  take_record(record, result);
  if (result.outcome == Outcome::Ok && record.outcome != "ok") {
    result.outcome = Outcome::Error;
    const bool full = speaks_of_full_disk(end.last_words);
    result.reason = fmt::format("it exited with code 0 but its record says {}{}", record.outcome,
                                full ? "; the disk is full" : "");
  }
  if (result.outcome != Outcome::OutOfMemory || !record.out_of_memory) return;
  const report::OutOfMemoryRecord& refused = *record.out_of_memory;
  result.measured->by_category = refused.by_category;
  if (const std::string who = who_asked(refused, record.device.budget_bytes); !who.empty())
    result.reason = who;
}

}  // namespace snug::lab
