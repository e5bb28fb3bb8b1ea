// SPDX-License-Identifier: Apache-2.0
#include "train/host.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <cstdlib>

#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "dist/world.h"
#include "memory/disk_file.h"
#include "memory/ledger.h"
#include "setup/accelerator.h"

namespace snug::train {

int64_t peak_resident_bytes() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * kKiB;
}

namespace {

// Before CUDA is asked for anything: "device 0" is then this process's own everywhere.
void see_own_gpu() {
  const dist::Position position = dist::position_in_environment();
  if (position.local_size == 1) return;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string own =
      setup::visible_gpu(position.local_rank, visible == nullptr ? "" : visible);
  ::setenv("CUDA_VISIBLE_DEVICES", own.c_str(), 1);
}

}  // namespace

Host prepare_host(const std::string& memory_budget, int64_t num_threads,
                  const std::string& accelerator) {
  see_own_gpu();
  memory::install_allocators();
  // Numbers below 1e-38 become zero: an early gradient is full of them in some layers, and each one
  // costs a processor a hundred times an ordinary product. Threads take this over from the one that
  // starts them.
  at::globalContext().setFlushDenormal(true);
  if (num_threads > 0) at::set_num_threads(static_cast<int>(num_threads));
  int64_t budget = memory_budget.empty() ? 0 : parse_bytes(memory_budget, "memory_budget");
  const at::Device device = setup::open_device(accelerator);
  if (const int64_t driver = setup::driver_bytes(device); budget > 0 && driver > 0) {
    if (budget <= driver)
      throw UserError("memory_budget = {}: the driver takes {} of the device, which leaves nothing",
                      memory_budget, format_bytes(driver));
    budget -= driver;
  }
  memory::Ledger& ledger = memory::ledger_of(device.type());
  ledger.set_budget(budget);
  return {device, budget, device.is_cuda() ? ledger.allocated() : 0};
}

void check_offload_folder(const config::Recipe& recipe) {
  std::optional<std::string> folder = recipe.offload_folder();
  if (!folder && recipe.fit && !recipe.fit_disk.empty()) folder = recipe.fit_disk;
  if (!folder || memory::DiskFile::is_on_disk(*folder)) return;
  warn(
      "optimizer_offload = disk:{}: files there are held in memory (tmpfs), so the states stay in "
      "it and no budget counts them; name a folder on a disk, or use --optimizer_offload cpu",
      *folder);
}

}  // namespace snug::train
