// SPDX-License-Identifier: Apache-2.0
#include "train/run_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/bytes.h"
#include "core/dist/world.h"
#include "core/memory/ledger.h"
#include "engine/host.h"
#include "plan/fit.h"
#include "plan/out_of_memory.h"
#include "plan/predict.h"

namespace snug::train {
namespace {

// The device of the run as the search for techniques wants it.
plan::DeviceProfile device_of(const engine::Host& host) {
  if (!host.device.is_cuda()) return plan::find_profile("cpu", host.budget_bytes);
  plan::DeviceProfile profile = plan::profile_of_gpu(engine::device_name(host.device));
  profile.name = engine::device_name(host.device);
  profile.memory_bytes = host.reserved_limit;
  profile.context_bytes = host.library_reserved;
  return profile;
}

plan::DeviceProfile profile_of(const PlannedRun& run) {
  return plan::with_host(device_of(run.host), run.recipe, plan::Machine::Here);
}

plan::Workload workload(const PlannedRun& run) {
  return {.samples = run.dataset.train,
          .max_seqlen = run.max_seqlen,
          .reading = run.dataset.batch_options.reading,
          .validation = &run.dataset.validation,
          .others = &run.dataset.train_others,
          .validation_others = &run.dataset.validation_others};
}

// A given host_memory limits a run too; the memory that happens to be free now does not.
void check_host_memory(const PlannedRun& run, const plan::Prediction& prediction) {
  if (run.recipe.host_memory.empty() || run.recipe.force) return;
  const int64_t there = parse_bytes(run.recipe.host_memory, "host_memory");
  const at::DeviceType device = run.host.device.type();
  const int64_t ranks = dist::position_in_environment().local_size;
  if (plan::host_bytes_needed(prediction, device, ranks) > there)
    throw plan::plan_needs_more_host(prediction, device, ranks, there);
}

// What the process with the largest peak says, and of several which it is.
std::string of_neediest(const dist::Mesh& mesh, int64_t peak, const std::string& text) {
  if (mesh.is_single()) return text;
  const std::vector<std::string> all =
      mesh.world().gather_texts(fmt::format("{:020}{}", peak, text));
  const auto by_peak = [](const std::string& a, const std::string& b) {
    return a.substr(0, 20) < b.substr(0, 20);
  };
  const auto most = std::ranges::max_element(all, by_peak);
  return fmt::format("{} (rank {})", most->substr(20), most - all.begin());
}

std::string verdict(const engine::Host& host, const plan::Prediction& prediction,
                    const Room& room) {
  std::string text = "peak " + format_bytes(prediction.peak_allocated + host.library_bytes);
  if (host.device.is_cuda())
    text += fmt::format(" allocated, {} reserved", format_bytes(room.needed));
  if (room.there == 0) return text;
  const bool is_budget = host.budget_bytes > 0 && room.there == host.budget_bytes;
  return text + fmt::format(" of {} {}: {}", is_budget ? "a budget of" : "the device's free",
                            format_bytes(room.there), room.fits() ? "fits" : "does not fit");
}

}  // namespace

Room room_of(const engine::Host& host, const plan::Prediction& prediction) {
  if (!host.device.is_cuda())
    return {prediction.peak_allocated + host.library_bytes, host.budget_bytes};
  Room room{prediction.peak_reserved + host.library_reserved, host.reserved_limit};
  if (!prediction.fits_reserved) room.needed = std::max(room.needed, room.there + 1);
  return room;
}

void check_plan(const PlannedRun& run, RunLog& log) {
  const bool on_gpu = run.host.device.is_cuda();
  const data::MicroBatch largest =
      plan::largest_micro_batch(workload(run), run.recipe, run.recipe.train.micro_batch_size);
  const plan::Prediction prediction =
      plan::predict(run.model, run.recipe, largest, run.max_seqlen,
                    {.device = run.host.device.type(),
                     .reserved_limit = run.host.reserved_limit - run.host.library_reserved,
                     .timeline = on_gpu,
                     .validation = plan::larger_of_validation(workload(run), run.recipe, largest),
                     .mesh = dist::planned_mesh(run.mesh.shape(), run.mesh.rank(),
                                                run.host.device.is_cuda() ? dist::Transport::Nccl
                                                                          : dist::Transport::Mpi)});
  const Room room = room_of(run.host, prediction);
  report::MemoryPeaks peaks{.peak_allocated = prediction.peak_allocated + run.host.library_bytes,
                            .peak_reserved = on_gpu ? room.needed : 0,
                            .on_disk = prediction.on_disk};
  for (size_t c = 0; c < memory::kNumCategories; ++c)
    peaks.by_category[memory::name(static_cast<memory::Category>(c))] = prediction.by_category[c];
  peaks.by_category[memory::name(memory::Category::Workspace)] += run.host.library_bytes;
  log.planned(peaks);
  log.print("Plan     " +
            of_neediest(run.mesh, prediction.peak_allocated, verdict(run.host, prediction, room)));
  if (prediction.peak_host > 0)
    log.print(fmt::format("Host     {} of host memory", format_bytes(prediction.peak_host)));
  if (prediction.on_disk > 0)
    log.print(fmt::format("Disk     {} in {}", format_bytes(prediction.on_disk),
                          run.recipe.disk_folder().value_or("")));
  const bool may_try = run.recipe.force || run.recipe.train.on_oom == recipe::OnOom::Split;
  if (!room.fits() && !may_try)
    throw plan::plan_does_not_fit(prediction, {.needed = room.needed,
                                               .there = room.there,
                                               .of_libraries = run.host.library_bytes,
                                               .is_budget = run.host.budget_bytes > 0});
  check_host_memory(run, prediction);
}

recipe::Recipe fitting_recipe(const PlannedRun& run, RunLog& log) {
  const plan::DeviceProfile device = profile_of(run);
  const plan::Fit fit = plan::fit(run.model, run.recipe, workload(run), device);
  if (!fit.best)
    throw plan::PlanDoesNotFit(
        fmt::format("--fit: none of {} combinations fits into {}{}", fit.tried,
                    format_bytes(device.usable_bytes()), plan::why_none_fits(fit, device)),
        {.phase = "plan"});
  log.print(fmt::format("Fit      {} combinations tried: {}", fit.tried,
                        fit.best->options.empty() ? "the unchanged recipe is the fastest that fits"
                                                  : fit.best->options) +
            plan::choice_reasons(fit, run.recipe, device));
  return fit.best->recipe;
}

std::vector<plan::Suggestion> suggestions(const PlannedRun& run, int64_t available) {
  if (run.dataset.train.count() == 0) return {};
  // Planning itself needs a little memory.
  memory::ledger_of(run.host.device.type()).set_budget(0);
  try {
    plan::DeviceProfile device = profile_of(run);
    // The system may refuse long before the device is full: a limit of the shell, a container.
    if (available > 0 && !run.host.device.is_cuda())
      device.memory_bytes = std::min(device.memory_bytes, available + device.context_bytes);
    if (device.usable_bytes() <= 0) return {};
    return plan::suggest(run.model, run.recipe, workload(run), device);
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace snug::train
