// SPDX-License-Identifier: Apache-2.0
#include "plan/devices/measured_rates.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "support/temp_folder.h"

namespace snug::plan {
namespace {

namespace fs = std::filesystem;

fs::path rates_file(const fs::path& cache) {
  for (const auto& entry : fs::directory_iterator(cache))
    if (entry.path().extension() == ".json") return entry.path();
  return {};
}

TEST(DiskRates, AreMeasuredAndRememberedAtTheirBest) {
  const test::TempFolder folder, cache;
  const auto first = disk_rates(folder.path(), cache.path());
  ASSERT_TRUE(first);
  EXPECT_GT(first->read_bytes_per_second, 1e6);
  EXPECT_GT(first->write_bytes_per_second, 1e6);
  EXPECT_TRUE(fs::is_empty(folder.path()));
  const auto second = disk_rates(folder.path(), cache.path());
  ASSERT_TRUE(second);
  EXPECT_GE(second->read_bytes_per_second, first->read_bytes_per_second);
  EXPECT_GE(second->write_bytes_per_second, first->write_bytes_per_second);
  // A busy moment's figure replaces no better one, and one that is missing is measured again.
  write_file_atomically(rates_file(cache.path()),
                        R"({"read_bytes_per_second": 9e18, "write_bytes_per_second": 1})");
  const auto third = disk_rates(folder.path(), cache.path());
  ASSERT_TRUE(third);
  EXPECT_EQ(third->read_bytes_per_second, 9e18);
  EXPECT_GT(third->write_bytes_per_second, 1e6);
  write_file_atomically(rates_file(cache.path()), R"({"read_bytes_per_second": 9e18})");
  EXPECT_LT(disk_rates(folder.path(), cache.path())->read_bytes_per_second, 9e18);
}

// Another folder of the same file system is the same disk.
TEST(DiskRates, BelongToADiskAndNotToAFolder) {
  const test::TempFolder one, other, cache;
  disk_rates(one.path(), cache.path());
  write_file_atomically(rates_file(cache.path()),
                        R"({"read_bytes_per_second": 9e18, "write_bytes_per_second": 9e18})");
  EXPECT_EQ(disk_rates(other.path(), cache.path())->read_bytes_per_second, 9e18);
}

TEST(DiskRates, AFolderThatIsNotThereHasNone) {
  const test::TempFolder cache;
  EXPECT_FALSE(disk_rates("/no such folder", cache.path()));
  EXPECT_TRUE(fs::is_empty(cache.path()));
}

}  // namespace
}  // namespace snug::plan
