// SPDX-License-Identifier: Apache-2.0
#include "setup/accelerator.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "memory/ledger.h"
#include "setup/cuda_device.h"

namespace snug::setup {
namespace {

TEST(Accelerator, CpuIsAlwaysThere) {
  EXPECT_TRUE(open_device("cpu").is_cpu());
  EXPECT_FALSE(device_name(at::kCPU).empty());
  EXPECT_GT(peak_flops_per_second(at::kCPU, at::kFloat), 0);
}

TEST(Accelerator, AutoTakesAGpuWhereOneIsVisible) {
  memory::install_allocators();
  EXPECT_EQ(open_device("auto").is_cuda(), cuda::count() > 0);
}

TEST(Accelerator, CudaWithoutAGpuIsRefusedWithWhatToDo) {
  if (cuda::count() > 0) GTEST_SKIP() << "a GPU is here";
  try {
    open_device("cuda");
    FAIL() << "there is no GPU to open";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("--accelerator cpu"), std::string::npos)
        << error.what();
  }
}

TEST(Accelerator, GpusAreKnownByTheirNames) {
  EXPECT_EQ(gpu_peak_flops_per_second("NVIDIA H100 80GB HBM3"), 989e12);
  EXPECT_EQ(gpu_peak_flops_per_second("NVIDIA H100 PCIe"), 756e12);
  EXPECT_EQ(gpu_peak_flops_per_second("NVIDIA H200"), 989e12);
  EXPECT_EQ(gpu_peak_flops_per_second("NVIDIA A100-SXM4-40GB"), 312e12);
  EXPECT_EQ(gpu_peak_flops_per_second("NVIDIA L40S"), 362e12);
  EXPECT_EQ(gpu_peak_flops_per_second("NVIDIA L4"), 121e12);
  EXPECT_EQ(gpu_peak_flops_per_second("NVIDIA RTX A1000"), 0);
  EXPECT_EQ(gpu_peak_flops_per_second("A card of tomorrow"), 0);
}

TEST(VisibleGpu, IsOneForEachProcess) {
  EXPECT_EQ(visible_gpu(2, ""), "2");
  EXPECT_EQ(visible_gpu(1, "4,6,7"), "6");
  EXPECT_EQ(visible_gpu(3, "5"), "5");  // bound already, each to its own
  EXPECT_EQ(visible_gpu(1, "GPU-a,GPU-b"), "GPU-b");
}

}  // namespace
}  // namespace snug::setup
