// SPDX-License-Identifier: Apache-2.0
#include "plan/devices/measured_rates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <vector>

#include "base/files.h"
#include "support/temp_folder.h"

namespace snug::plan {
namespace {

void write_rates(const std::filesystem::path& cache, const char* text) {
  for (const auto& entry : std::filesystem::directory_iterator(cache))
    if (entry.path().extension() == ".json") write_file_atomically(entry.path(), text);
}

TEST(CpuRates, AreRemembered) {
  const test::TempFolder folder;
  const CpuRates first = cpu_rates(folder / "cache");
  EXPECT_GT(first.flops_32bit, 1e8);
  EXPECT_GT(first.flops_16bit, 1e8);
  EXPECT_GT(first.copy_bytes_per_second, 1e8);
  const CpuRates second = cpu_rates(folder / "cache");
  EXPECT_GE(second.flops_16bit, first.flops_16bit);
  EXPECT_GE(second.flops_32bit, first.flops_32bit);
  EXPECT_GE(second.copy_bytes_per_second, first.copy_bytes_per_second);
}

// A busy neighbour's figure must not replace a better one.
TEST(CpuRates, OnlyEverRise) {
  const test::TempFolder folder;
  cpu_rates(folder / "cache");
  write_rates(folder / "cache", R"({"flops_16bit": 9e18, "flops_32bit": 1,
                                    "copy_bytes_per_second": 9e18})");
  const CpuRates rates = cpu_rates(folder / "cache");
  EXPECT_EQ(rates.flops_16bit, 9e18);
  EXPECT_EQ(rates.copy_bytes_per_second, 9e18);
  EXPECT_GT(rates.flops_32bit, 1e8);
}

// A program that measured at the same time must not take back what this one has found.
TEST(CpuRates, OfSeveralProgramsTheBestStays) {
  const test::TempFolder folder;
  const auto measure = [&] { return cpu_rates(folder / "cache"); };
  std::vector<std::future<CpuRates>> all;
  for (int i = 0; i < 4; ++i) all.push_back(std::async(std::launch::async, measure));
  double best = 0;
  for (auto& rates : all) best = std::max(best, rates.get().flops_32bit);
  EXPECT_GE(measure().flops_32bit, best);
}

TEST(CpuRates, AFileThatCannotBeReadIsMeasuredAgain) {
  const test::TempFolder folder;
  cpu_rates(folder / "cache");
  write_rates(folder / "cache", "{\"flops_16bit\": ");
  EXPECT_GT(cpu_rates(folder / "cache").flops_16bit, 1e8);
}

TEST(CpuRates, AFolderThatCannotBeMadeIsNoFault) {
  EXPECT_GT(cpu_rates("/proc/no such folder").flops_32bit, 1e8);
}

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
