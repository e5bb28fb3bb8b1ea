// SPDX-License-Identifier: Apache-2.0
#include "engine/host.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "core/memory/ledger.h"
#include "engine/cuda_device.h"

namespace snug::engine {
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
  const auto peak = [](const char* name) { return gpu_peak_flops_per_second(name, at::kBFloat16); };
  EXPECT_EQ(peak("NVIDIA H100 80GB HBM3"), 989e12);
  EXPECT_EQ(peak("NVIDIA H100 PCIe"), 756e12);
  EXPECT_EQ(peak("NVIDIA H200"), 989e12);
  EXPECT_EQ(peak("NVIDIA A100-SXM4-40GB"), 312e12);
  EXPECT_EQ(peak("NVIDIA L40S"), 362e12);
  EXPECT_EQ(peak("NVIDIA L4"), 121e12);
  EXPECT_EQ(peak("NVIDIA RTX A1000"), 0);
  EXPECT_EQ(peak("A card of tomorrow"), 0);
}

TEST(Accelerator, MatmulPrecisionIsTheGpusAlone) {
  at::Context& context = at::globalContext();
  const auto gpu_rounds = [&] { return context.allowTF32CuBLAS(); };
  const auto cpu_rounds = [&] {
    return context.float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL);
  };
  const auto before = cpu_rounds();
  const auto peak = [] { return gpu_peak_flops_per_second("NVIDIA A100-SXM4-40GB", at::kFloat); };
  for (const char* precision : {"high", "medium"}) {
    choose_matmul_precision(at::Device(at::kCUDA, 0), precision);
    EXPECT_TRUE(gpu_rounds()) << precision;
    EXPECT_EQ(cpu_rounds(), before) << precision;
    EXPECT_EQ(peak(), 156e12) << precision;
  }
  choose_matmul_precision(at::Device(at::kCUDA, 0), "highest");
  EXPECT_FALSE(gpu_rounds());
  EXPECT_EQ(peak(), 19.5e12);
  for (const char* precision : {"high", "medium"}) {
    choose_matmul_precision(at::kCPU, precision);
    EXPECT_FALSE(gpu_rounds()) << precision;
    EXPECT_EQ(cpu_rounds(), before) << precision;
  }
}

TEST(VisibleGpu, IsOneForEachProcess) {
  EXPECT_EQ(visible_gpu(2, ""), "2");
  EXPECT_EQ(visible_gpu(1, "4,6,7"), "6");
  EXPECT_EQ(visible_gpu(3, "5"), "5");  // bound already, each to its own
  EXPECT_EQ(visible_gpu(1, "GPU-a,GPU-b"), "GPU-b");
}

}  // namespace
}  // namespace snug::engine
