// SPDX-License-Identifier: Apache-2.0
#include "train/launch/launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "base/program.h"
#include "core/dist/position.h"
#include "train/launch/keeper.h"
#include "train/launch/layout.h"
#include "train/launch/supervisor.h"
#include "train/launch/torchrun.h"

namespace snug::launch {
namespace {

// All ranks of a job that a person started with mpirun or srun know it by the same name.
std::string job_in_environment() {
  std::string name;
  for (const char* variable : {"OMPI_MCA_orte_hnp_uri", "PMIX_NAMESPACE", "SLURM_JOB_ID",
                               "SLURM_STEP_ID", "SLURM_RESTART_COUNT"})
    name += environment(variable).value_or("") + " ";
  return name;
}

std::optional<int> keep(const recipe::Recipe& recipe, const dist::Position& position) {
  const auto job = environment(kJobVariable);
  if (job) count_from(environment(kStartVariable).value_or(""));
  if (!job) {
    std::error_code ignored;  // the log says it where it cannot be written
    std::filesystem::create_directories(logs_folder(recipe.out_dir), ignored);
  }
  KeeperOptions options{.out_dir = recipe.out_dir,
                        .job = job.value_or(job_in_environment()),
                        .rank = position.rank,
                        .size = position.size,
                        .is_supervised = job.has_value(),
                        .terminal = environment(kTerminalVariable).value_or("")};
  options.silence_seconds =
      std::min(options.silence_seconds, static_cast<double>(recipe.collective_timeout));
  return keep_rank(options);
}

int start_ranks(const recipe::Recipe& recipe, const std::vector<std::string>& words) {
  const auto devices = std::stoi(recipe.devices);
  const int num_ranks = devices * static_cast<int>(recipe.num_nodes);
  return supervise({.mpirun = find_mpirun(num_ranks, environment),
                    .program = std::filesystem::read_symlink("/proc/self/exe").string(),
                    .words = words,
                    .devices = devices,
                    .num_nodes = static_cast<int>(recipe.num_nodes),
                    .hosts = recipe.hosts,
                    .hostfile = recipe.hostfile,
                    .num_threads = recipe.num_threads > 0 ? static_cast<int>(recipe.num_threads)
                                                          : threads_each(devices),
                    .is_root = ::geteuid() == 0},
                   recipe.out_dir);
}

// The recipe is checked for its faults alone: rank 0 gives the warnings.
void check_silently(const std::function<void()>& check) {
  const LogSinkGuard silence([](const std::string&) {});
  check();
}

int lead_or_follow(recipe::Recipe& recipe, const std::vector<std::string>& words,
                   const std::function<void()>& check, const std::function<void()>& take_folder) {
  const TorchrunPlace place = torchrun_place(environment);
  Waiting waiting(environment);
  if (place.rank != 0) return waiting.wait_for_exit_code();
  waiting.open();
  resolve_under(recipe, "torchrun", {.size = place.size, .local_size = place.size});
  check_silently(check);
  take_folder();
  const int exit_code = start_ranks(recipe, words);
  waiting.tell(exit_code);
  return exit_code;
}

}  // namespace

std::optional<int> start(recipe::Recipe& recipe, const std::vector<std::string>& words,
                         const std::function<void()>& check, const std::function<int()>& count_gpus,
                         const std::function<void()>& take_folder) {
  const std::string starter = dist::started_by();
  const dist::Position position = dist::position_in_environment();
  if (position.size > 1) {
    if (const auto exit_code = keep(recipe, position)) return exit_code;
    resolve_under(recipe, starter, position);
    check();
    if (position.rank == 0 && !environment(kJobVariable)) take_folder();
    return std::nullopt;
  }
  if (dist::is_started_by_torchrun()) return lead_or_follow(recipe, words, check, take_folder);
  const bool counts = recipe.accelerator != recipe::Accelerator::Cpu && recipe.devices != "1";
  resolve_alone(recipe, counts ? count_gpus() : 0);
  if (is_single(recipe)) {
    check();
    take_folder();
    return std::nullopt;
  }
  if (!starter.empty() && starter != "srun") resolve_under(recipe, starter, position);  // throws
  check_silently(check);
  take_folder();
  return start_ranks(recipe, words);
}

bool tell_end(int exit_code, const std::string& text, bool lost_another_rank) {
  return tell_keeper(exit_code, text, lost_another_rank);
}

}  // namespace snug::launch
