// SPDX-License-Identifier: Apache-2.0
#include "train/host.h"

#include <ATen/Parallel.h>
#include <sys/resource.h>

#include "base/bytes.h"
#include "memory/ledger.h"

namespace snug::train {

int64_t peak_resident_bytes() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * kKiB;
}

int64_t prepare_host(const std::string& memory_budget, int64_t num_threads) {
  memory::install_allocators();
  if (num_threads > 0) at::set_num_threads(static_cast<int>(num_threads));
  const int64_t budget = memory_budget.empty() ? 0 : parse_bytes(memory_budget, "memory_budget");
  memory::cpu_ledger().set_budget(budget);
  return budget;
}

}  // namespace snug::train
