// Which device's memory a meta tensor stands for, and what a build without CUDA says.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/memory/ledger.h"
#include "core/memory/placement.h"
#include "core/ops/attention/library_attention.h"
#include "core/ops/device/device.h"
#include "core/ops/linear/matmul.h"

namespace snug::ops {
namespace {

thread_local std::vector<std::vector<int64_t>>* seen_sums = nullptr;

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
    const at::Tensor home = memory::empty_on_host(
        {4}, at::kFloat, at::kMeta, memory::Category::Parameters, memory::HostUse::Written);
    EXPECT_EQ(kernel_device(home), at::kCPU);
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

// On cuda libtorch takes a sum of one row for a bias, and a workspace of cuBLASLt's for it.
TEST(LibraryProduct, NeverAddsToOneRow) {
  memory::install_allocators();
  at::manual_seed(2);
  std::vector<std::vector<int64_t>> sums;
  at::RecordFunctionCallback callback(
      [](const at::RecordFunction& fn) -> std::unique_ptr<at::ObserverContext> {
        if (std::string(fn.name()) == "aten::addmm")
          seen_sums->push_back(fn.inputs()[0].toTensor().sizes().vec());
        return nullptr;
      });
  callback.needsInputs(true);
  seen_sums = &sums;
  const auto handle = at::addThreadLocalCallback(callback);
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{1, 24}, {24, 1}, {1, 1}, {8, 5}}) {
    const at::Tensor a = at::randn({rows, 7}), b = at::randn({7, columns});
    const at::Tensor start = at::randn({rows, columns}), out = start.clone();
    library_product(out, a, b, Into::Accumulate, 0.5F);
    EXPECT_TRUE(at::allclose(out, start + 0.5 * a.matmul(b))) << rows << " x " << columns;
    library_product(out, a, b, Into::Overwrite, 1.0F);
    EXPECT_TRUE(at::allclose(out, a.matmul(b))) << rows << " x " << columns;
  }
  at::removeCallback(handle);
  EXPECT_EQ(sums.size(), 4U);
  for (const auto& sizes : sums) EXPECT_FALSE(sizes[0] == 1 && sizes[1] > 1) << sizes[1];
}

// Beside the output and a number a row: the state of a generator, three numbers of 8 bytes.
TEST(FlashAttention, HasTheGeneratorsStatePlanned) {
  memory::install_allocators();
  const StandInGuard guard(at::kCUDA);
  const auto halves = at::TensorOptions().device(at::kMeta).dtype(at::kBFloat16);
  const at::Tensor q = at::empty({64, 4, 16}, halves), k = at::empty({64, 2, 16}, halves);
  const AttentionContext context{.cu_seqlens = at::empty({2}, halves.dtype(at::kInt)),
                                 .max_seqlen = 64};
  memory::Ledger& ledger = memory::meta_ledger();
  ledger.reset_peak();
  const AttentionOutput out = library_attention_forward(LibraryAttention::Flash, q, k, k, context);
  EXPECT_EQ(ledger.at_peak().allocated - ledger.allocated(), 24);
}

}  // namespace
}  // namespace snug::ops
