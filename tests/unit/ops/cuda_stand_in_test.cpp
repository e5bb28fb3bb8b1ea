// Which device's memory a meta tensor stands for, and what a build without CUDA says.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "memory/ledger.h"
#include "ops/device.h"
#include "ops/matmul.h"

namespace snug::ops {
namespace {

at::Tensor on_meta(at::ScalarType type) {
  return at::empty({32, 16}, at::TensorOptions().device(at::kMeta).dtype(type));
}

TEST(StandIn, MetaTensorsStandForTheDeviceOfTheGuard) {
  memory::install_allocators();
  const at::Tensor x = on_meta(at::kBFloat16);
  EXPECT_EQ(kernel_device(x), at::kCPU);
  {
    const StandInGuard guard(at::kCUDA);
    EXPECT_EQ(kernel_device(x), at::kCUDA);
    EXPECT_EQ(operand_type(x), at::kBFloat16);
  }
  EXPECT_EQ(kernel_device(x), at::kCPU);
  EXPECT_EQ(kernel_device(at::empty({1})), at::kCPU);
}

TEST(StandIn, ProductsOnCudaNeedNoScratch) {
  memory::install_allocators();
  const at::Tensor a = on_meta(at::kBFloat16);
  const at::Tensor b = on_meta(at::kBFloat16);
  const StandInGuard guard(at::kCUDA);
  memory::Ledger& ledger = memory::meta_ledger();
  const int64_t before = ledger.allocated();
  ledger.reset_peak();
  const at::Tensor out = matmul(a, b.t(), at::kFloat);
  EXPECT_EQ(ledger.at_peak().allocated - before, 32 * 32 * 4);
}

}  // namespace
}  // namespace snug::ops
