// SPDX-License-Identifier: Apache-2.0
#include "watch/machine/nvml.h"

#include <gtest/gtest.h>

#include "base/bytes.h"

namespace snug::machine {
namespace {

const GpuLink* link_to(const Gpu& gpu, int other) {
  for (const GpuLink& link : gpu.links)
    if (link.other == other) return &link;
  return nullptr;
}

TEST(Nvml, WhatTheDriverSays) {
  const Gpus gpus = Nvml({FAKE_NVML}).look(Links::Leave);
  EXPECT_TRUE(gpus.has_library);
  EXPECT_EQ(gpus.why_not, "");
  EXPECT_EQ(gpus.driver_version, "580.65.06");
  EXPECT_EQ(gpus.cuda_version, "13.0");
  ASSERT_EQ(gpus.gpus.size(), 3U);
  const Gpu& gpu = gpus.gpus[1];
  EXPECT_EQ(gpu.index, 1);
  EXPECT_EQ(gpu.name, "NVIDIA A100-SXM4-40GB");
  EXPECT_EQ(gpu.uuid, "GPU-1");
  EXPECT_EQ(gpu.bus_id, "00000000:02:00.0");
  EXPECT_EQ(gpu.memory_total, 40 * kGiB);
  EXPECT_EQ(gpu.memory_used, 2 * kGiB);
  EXPECT_EQ(gpu.compute_capability, 81);
  EXPECT_EQ(gpu.busy_percent, 93);
  EXPECT_EQ(gpu.memory_busy_percent, 41);
  EXPECT_EQ(gpu.temperature, 61);
  EXPECT_EQ(gpu.power_watts, 312);
  EXPECT_EQ(gpu.power_limit_watts, 400);
  EXPECT_FALSE(gpu.mig);
  EXPECT_TRUE(gpu.links.empty()) << "they were not asked for";
}

TEST(Nvml, WhatAGpuDoesNotTellIsEmpty) {
  const Gpus gpus = Nvml({FAKE_NVML}).look(Links::Leave);
  ASSERT_EQ(gpus.gpus.size(), 3U);
  EXPECT_FALSE(gpus.gpus[2].busy_percent.has_value());
  EXPECT_FALSE(gpus.gpus[2].memory_busy_percent.has_value());
  EXPECT_EQ(gpus.gpus[2].compute_capability, 0);
  EXPECT_TRUE(gpus.gpus[2].mig);
}

TEST(Nvml, MoreProcessesThanThereIsRoomFor) {
  const Gpus gpus = Nvml({FAKE_NVML}).look(Links::Leave);
  ASSERT_EQ(gpus.gpus.size(), 3U);
  const auto& bytes = gpus.gpus[0].process_bytes;
  EXPECT_EQ(bytes.size(), 100U) << "all but the one whose bytes are not known";
  EXPECT_EQ(bytes.at(1000), 512 * kMiB);
  EXPECT_EQ(bytes.at(1100), 612 * kMiB);
  EXPECT_FALSE(bytes.contains(1050));
}

TEST(Nvml, NvlinkWhereThereIsOneElseTheBus) {
  const Gpus gpus = Nvml({FAKE_NVML}).look(Links::Read);
  ASSERT_EQ(gpus.gpus.size(), 3U);
  for (const Gpu& gpu : gpus.gpus) EXPECT_EQ(gpu.links.size(), 2U);
  for (const auto& [from, to] : {std::pair{0, 1}, std::pair{1, 0}}) {
    const GpuLink* link = link_to(gpus.gpus[static_cast<size_t>(from)], to);
    ASSERT_NE(link, nullptr);
    EXPECT_EQ(link->kind, "NVLink");
    EXPECT_EQ(link->lanes, 4);
  }
  const GpuLink* link = link_to(gpus.gpus[0], 2);
  ASSERT_NE(link, nullptr);
  EXPECT_EQ(link->kind, "host bridge");
  EXPECT_EQ(link->lanes, 0);
}

TEST(Nvml, ADriverThatDoesNotAnswer) {
  const Gpus gpus = Nvml({FAILING_NVML}).look(Links::Read);
  EXPECT_TRUE(gpus.has_library);
  EXPECT_TRUE(gpus.gpus.empty());
  EXPECT_NE(gpus.why_not.find("Driver/library version mismatch"), std::string::npos);
}

TEST(Nvml, NoLibraryOrOneThatIsNone) {
  const Gpus none = Nvml({"/nowhere/libnvidia-ml.so.1"}).look(Links::Read);
  EXPECT_FALSE(none.has_library);
  EXPECT_TRUE(none.gpus.empty());
  EXPECT_NE(none.why_not.find("no NVIDIA driver"), std::string::npos);
  const Gpus empty = Nvml({EMPTY_NVML}).look(Links::Read);
  EXPECT_TRUE(empty.gpus.empty());
  EXPECT_NE(empty.why_not.find("too old"), std::string::npos);
}

TEST(Nvml, TheSecondPathIsTakenWhereTheFirstIsNot) {
  EXPECT_EQ(Nvml({"/nowhere/lib.so", FAKE_NVML}).look(Links::Leave).gpus.size(), 3U);
}

}  // namespace
}  // namespace snug::machine
