// What a disk of this machine reads and writes, for optimizer states on it. Measured past the
// system's cache, in large pieces, as an update goes through its states; remembered at its best
// (best_rates.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>

namespace snug::plan {

struct DiskRates {
  double read_bytes_per_second = 0, write_bytes_per_second = 0;
};

// Of the disk that `folder` is on. A measurement goes with every call: 64 MiB, or what fits into a
// fifth of a second, are written to a file without a name and read again. It raises what is
// remembered in `cache`/disk-rates-….json, one a file system. None where no file can be made there.
std::optional<DiskRates> disk_rates(const std::filesystem::path& folder,
                                    const std::filesystem::path& cache);
// With snug's cache folder ($SNUG_CACHE, else ~/.cache/snug).
std::optional<DiskRates> disk_rates(const std::filesystem::path& folder);

}  // namespace snug::plan
