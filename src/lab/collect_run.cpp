// A row's figures as measured, from the run.json that its run left.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "base/error.h"
#include "lab/collect.h"
#include "recipe/gpus.h"
#include "report/run_record.h"
#include "watch/machine/machine.h"

namespace snug::lab {
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

// The median of the steps behind the first one, which also warms up.
double step_seconds(const std::vector<report::StepRecord>& steps) {
  std::vector<double> seconds;
  for (size_t i = steps.size() > 1 ? 1 : 0; i < steps.size(); ++i)
    seconds.push_back(steps[i].seconds);
  if (seconds.empty()) return 0;
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return finite(*middle);
}

Figures measured_figures(const report::RunRecord& record) {
  const report::MemoryPeaks& peaks = record.memory.measured;
  Figures figures{.fits = record.outcome == "ok",
                  .peak_allocated = peaks.peak_allocated,
                  .peak_reserved = peaks.peak_reserved,
                  .peak_host = peaks.peak_host,
                  .by_category = peaks.by_category,
                  .step_seconds = step_seconds(record.steps),
                  .tokens_per_second = finite(record.speed.tokens_per_second),
                  .model_flops_per_second = finite(record.speed.model_flops_per_second),
                  .share_of_peak = finite(record.speed.share_of_peak)};
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

// "block 3, backward: 512.00 MiB more for gradients do not fit, 120.00 MiB missing".
std::string who_asked(const report::OutOfMemoryRecord& record, int64_t budget) {
  if (record.requested == 0) return "";
  const std::string limit =
      budget > 0 ? fmt::format(" of a budget of {}", format_bytes(budget)) : "";
  return fmt::format("{}, {}: needs {} more for {} on top of {}{}, {} missing",
                     record.unit.empty() ? "the run" : record.unit, record.phase,
                     format_bytes(record.requested), record.category,
                     format_bytes(record.allocated), limit, format_bytes(record.missing));
}

// Whether a run's device is a GPU: one by its name, or one that this machine has.
bool is_gpu(const std::string& device) {
  if (recipe::gpu_by_cuda_name(device) != nullptr) return true;
  const machine::Gpus here = machine::gpus();
  return std::any_of(here.gpus.begin(), here.gpus.end(), [&](const machine::Gpu& gpu) {
    return !gpu.name.empty() && device.starts_with(gpu.name);
  });
}

// The run's own plan, of its own data and device, takes the place of the one made beforehand; of
// several ranks that of the neediest, as with what is measured.
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
  // On a processor what its allocator holds says nothing of a device.
  if (!is_gpu(record.device.name)) result.measured->peak_reserved = 0;
  if (record.device.budget_bytes > 0) result.limit_bytes = record.device.budget_bytes;
  take_own_plan(record, result);
  result.device = record.device.name;
  result.world_size = record.world_size;
  result.parameters = record.model.parameters;
  result.trained = record.model.trainable;
  for (const report::StepRecord& step : record.steps)
    if (std::isfinite(step.loss)) result.losses.push_back({step.step, step.loss});
  for (const report::PhaseRecord& phase : record.memory.phases)
    result.phases.push_back({.step = phase.step,
                             .phase = phase.phase,
                             .by_category = by_category(phase),
                             .allocated = phase.allocated,
                             .peak = phase.peak,
                             .reserved = phase.reserved});
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
