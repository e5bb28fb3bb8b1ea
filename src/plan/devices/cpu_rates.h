// What this machine's processor reaches, remembered at its best (best_rates.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace snug::plan {

struct CpuRates {
  double flops_16bit = 0, flops_32bit = 0;  // per second, of a block-sized matrix product
  double copy_bytes_per_second = 0;         // read and written, by a copy that no cache holds
};

// From `folder`/cpu-rates-….json, one a processor, number of threads and instruction set. A short
// measurement goes with every call (the first one takes about a second) and raises what is written
// there where it finds more.
CpuRates cpu_rates(const std::filesystem::path& folder);
// cpu_rates() of snug's cache folder ($SNUG_CACHE, else ~/.cache/snug).
CpuRates cpu_rates();

}  // namespace snug::plan
