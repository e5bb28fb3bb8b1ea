// Host memory beside a device: which blocks it comes from, by who writes to it first.
// SPDX-License-Identifier: Apache-2.0
#include "core/memory/placement.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/memory/guards.h"

namespace snug::memory {
namespace {

constexpr int64_t kBytes = 1 << 20;

// As beside a GPU; where there is none the driver's refusal to pin it changes nothing.
at::Tensor pinned(HostUse use) {
  const PinnedGuard guard(true);
  return empty_on_host({kBytes}, at::kByte, at::kCPU, Category::Data, use);
}

TEST(HostMemory, ABlockThatACopyMayStillReadGoesToCopiesAlone) {
  install_allocators();
  const void* landing = pinned(HostUse::Landing).data_ptr();
  const at::Tensor written = pinned(HostUse::Written);
  EXPECT_NE(written.data_ptr(), landing);
  const at::Tensor next = pinned(HostUse::Landing);
  EXPECT_EQ(next.data_ptr(), landing) << "a later copy may have it";
  EXPECT_EQ(find_allocation(next)->host_use, HostUse::Landing);
  EXPECT_EQ(find_allocation(written)->host_use, HostUse::Written);
}

TEST(HostMemory, IsToldFromTheDevices) {
  install_allocators();
  EXPECT_TRUE(
      is_on_host(empty_on_host({4}, at::kFloat, at::kMeta, Category::Data, HostUse::Written)));
  EXPECT_TRUE(
      is_on_host(empty_on_host({4}, at::kFloat, at::kCPU, Category::Data, HostUse::Written)));
  EXPECT_FALSE(is_on_host(at::empty({4})));
  EXPECT_FALSE(is_on_host(at::empty({4}, at::kMeta)));
}

}  // namespace
}  // namespace snug::memory
