// Rates of this machine: what its processor computes and copies, and what a disk reads and writes.
// The best values are kept in JSON files in snug's cache folder, so that plans do not depend on how
// busy the machine is; delete a file to start again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>

namespace snug::plan {

struct CpuRates {
  double flops_16bit = 0, flops_32bit = 0;  // per second, of a block-sized matrix product
  double copy_bytes_per_second = 0;         // read and written, by a copy larger than the caches
};

// From `folder`/cpu-rates-….json, one file per processor, number of threads and instruction set.
// Each call measures briefly (the first for about a second) and raises the stored rates if it finds
// higher ones.
CpuRates cpu_rates(const std::filesystem::path& folder);
// cpu_rates() of snug's cache folder ($SNUG_CACHE, else ~/.cache/snug).
CpuRates cpu_rates();

struct DiskRates {
  double read_bytes_per_second = 0, write_bytes_per_second = 0;
};

// For optimizer states on the disk of `folder`. Each call writes and reads an unnamed file, 64 MiB
// or as much as a fifth of a second allows, in large pieces without the page cache, and raises the
// rates stored in `cache`/disk-rates-….json, one file per file system. Empty if no file can be made
// there.
std::optional<DiskRates> disk_rates(const std::filesystem::path& folder,
                                    const std::filesystem::path& cache);
// With snug's cache folder ($SNUG_CACHE, else ~/.cache/snug).
std::optional<DiskRates> disk_rates(const std::filesystem::path& folder);

}  // namespace snug::plan
