// SPDX-License-Identifier: Apache-2.0
#include "train/host.h"

#include <ATen/Parallel.h>
#include <sys/resource.h>

#include "base/bytes.h"
#include "memory/ledger.h"
#include "setup/accelerator.h"

namespace snug::train {

int64_t peak_resident_bytes() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * kKiB;
}

Host prepare_host(const std::string& memory_budget, int64_t num_threads,
                  const std::string& accelerator) {
  memory::install_allocators();
  if (num_threads > 0) at::set_num_threads(static_cast<int>(num_threads));
  const int64_t budget = memory_budget.empty() ? 0 : parse_bytes(memory_budget, "memory_budget");
  const at::Device device = setup::open_device(accelerator);
  memory::Ledger& ledger = memory::ledger_of(device.type());
  ledger.set_budget(budget);
  return {device, budget, device.is_cuda() ? ledger.allocated() : 0};
}

}  // namespace snug::train
