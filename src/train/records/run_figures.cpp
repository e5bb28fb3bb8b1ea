// SPDX-License-Identifier: Apache-2.0
#include "train/records/run_figures.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/program.h"
#include "core/memory/ledger.h"
#include "report/tables.h"

namespace snug::train {

void RunFigures::set_flops(double per_token, double peak_per_second) {
  flops_per_token_ = per_token;
  peak_flops_per_second_ = peak_per_second;
}

double RunFigures::share_of_peak(double tokens_per_second) const {
  return peak_flops_per_second_ > 0 ? tokens_per_second * flops_per_token_ / peak_flops_per_second_
                                    : 0;
}

void RunFigures::begin_fit() { fit_begun_ = monotonic_seconds(); }
void RunFigures::end_fit() { fit_ended_ = monotonic_seconds(); }

void RunFigures::fill() const {
  report::RunRecord& record = log_.record();
  if (fit_begun_ > 0)
    record.fit_seconds =
        fit_seconds_before_ + (fit_ended_ > 0 ? fit_ended_ : monotonic_seconds()) - fit_begun_;
  record.startup = startup_.record();
  const at::DeviceType device = host_.device.type();
  const memory::Snapshot peak = memory::ledger_of(device).at_peak();
  report::MemoryPeaks peaks{.peak_allocated = peak.allocated,
                            .peak_reserved = memory::peak_reserved_on(device),
                            .peak_host = engine::peak_resident_bytes(),
                            .num_alloc_retries = memory::cuda_alloc_retries()};
  for (const report::PhaseRecord& phase : record.memory.phases)
    peaks.peak_reserved = std::max(peaks.peak_reserved, phase.reserved);
  if (engine_ != nullptr) peaks.on_disk = engine_->disk_ledger().allocated();
  for (size_t c = 0; c < memory::kNumCategories; ++c)
    peaks.by_category[memory::name(static_cast<memory::Category>(c))] = peak.by_category[c];
  log_.measured(peaks, seconds_since_program_start());
  const double rate = report::summary_of(record).tokens_per_second;
  record.speed = {.tokens_per_second = rate,
                  .model_flops_per_second = rate * flops_per_token_,
                  .share_of_peak = share_of_peak(rate),
                  .steps = report::statistics_of(record.steps)};
}

void RunFigures::fill_ranks(const dist::Mesh& mesh) const {
  if (mesh.is_single()) return;
  report::RunRecord& record = log_.record();
  const report::MemoryPeaks& peaks = record.memory.measured;
  const nlohmann::json own{record.device.name, record.memory.predicted->peak_allocated,
                           peaks.peak_allocated, peaks.peak_host, peaks.num_alloc_retries};
  const std::vector<std::string> all = mesh.world().gather_texts(own.dump());
  record.ranks.clear();  // a run before this one may have been stopped
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const nlohmann::json of = nlohmann::json::parse(all[rank]);
    record.ranks.push_back({.rank = static_cast<int>(rank),
                            .device = of[0],
                            .predicted_allocated = of[1],
                            .peak_allocated = of[2],
                            .peak_host = of[3],
                            .num_alloc_retries = of[4]});
  }
  log_.print(
      fmt::format("Peak of each process, {}\n\n{}", record.mesh, report::rank_table(record.ranks)));
}

}  // namespace snug::train
