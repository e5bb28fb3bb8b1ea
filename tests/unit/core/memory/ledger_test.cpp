// SPDX-License-Identifier: Apache-2.0
#include "core/memory/ledger.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/bytes.h"
#include "base/error.h"
#include "core/memory/guards.h"

namespace snug::memory {
namespace {

class LedgerTest : public ::testing::TestWithParam<at::DeviceType> {
 protected:
  static void SetUpTestSuite() { install_allocators(); }
  void SetUp() override {
    if (GetParam() == at::kCUDA && !at::hasCUDA()) GTEST_SKIP() << "no CUDA device";
  }
  Ledger& ledger() { return ledger_of(GetParam()); }
  at::Tensor make(int64_t elements) {
    return at::empty({elements}, at::TensorOptions().device(GetParam()).dtype(at::kFloat));
  }
};

TEST_P(LedgerTest, EveryByteHasOneCategoryAndGoesAway) {
  const int64_t before = ledger().allocated();
  {
    const CategoryGuard category(Category::Parameters);
    const at::Tensor a = make(1000);
    const at::Tensor b = make(1 << 20);
    EXPECT_EQ(ledger().allocated() - before, 4000 + (4 << 20));
    const ByCategory live = ledger().by_category();
    EXPECT_EQ(std::accumulate(live.begin(), live.end(), int64_t{0}), ledger().allocated());
    EXPECT_EQ(live[static_cast<size_t>(Category::Parameters)], 4000 + (4 << 20));
  }
  EXPECT_EQ(ledger().allocated(), before);
}

TEST_P(LedgerTest, WhatAForwardLeavesBehindBecomesActivations) {
  const uint64_t start = ledger().serial();
  const at::Tensor kept = make(100);
  { const at::Tensor transient = make(200); }
  ledger().retag_since(start, Category::Activations);
  EXPECT_EQ(ledger().by_category()[static_cast<size_t>(Category::Activations)], 400);
  EXPECT_EQ(ledger().by_category()[static_cast<size_t>(Category::Workspace)], 0);
  retag(kept, Category::Gradients);
  EXPECT_EQ(ledger().by_category()[static_cast<size_t>(Category::Gradients)], 400);
}

TEST_P(LedgerTest, PeakRemembersWhoWasLive) {
  ledger().reset_peak();
  const int64_t before = ledger().allocated();
  {
    const UnitGuard unit(unit_id("block"));
    const PhaseGuard phase(Phase::Backward);
    const at::Tensor big = make(5000);
  }
  const Snapshot peak = ledger().at_peak();
  EXPECT_EQ(peak.allocated, before + 20000);
  EXPECT_EQ(unit_name(peak.unit), "block");
  EXPECT_EQ(peak.phase, Phase::Backward);
}

TEST_P(LedgerTest, BudgetRefusesAndLeavesEverythingAsItWas) {
  const int64_t before = ledger().allocated();
  ledger().set_budget(before + 1 * kMiB);
  const at::Tensor fits = make(1000);
  try {
    const at::Tensor too_much = make(1 << 20);
    FAIL() << "the budget was passed";
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("missing"), std::string::npos) << error.what();
  }
  ledger().set_budget(0);
  EXPECT_EQ(ledger().allocated(), before + 4000);
  EXPECT_NO_THROW(make(1 << 20));
}

TEST_P(LedgerTest, ViewsShareTheirStorage) {
  const int64_t before = ledger().allocated();
  const at::Tensor whole = make(1000);
  const at::Tensor part = whole.slice(0, 10, 20);
  EXPECT_EQ(ledger().allocated() - before, 4000);
  EXPECT_EQ(find_allocation(part), find_allocation(whole));
}

// Between recordings their peak stays taken, whatever is freed; each can write over what others
// freed.
TEST_P(LedgerTest, WhatIsRecordedStaysTakenUntilItIsFreedAsAWhole) {
  const int64_t before = ledger().allocated();
  const auto record = [&](int64_t passing, int64_t kept) {
    ledger().begin_recording();
    current_tag.recorded = true;
    make(passing);
    const at::Tensor result = kept > 0 ? make(kept) : at::Tensor();
    current_tag.recorded = false;
    ledger().end_recording();
    return result;
  };
  const auto taken = [&] { return (ledger().allocated() - before) / 4; };
  const auto activations = [&] {
    return ledger().by_category()[static_cast<size_t>(Category::Activations)] / 4;
  };
  at::Tensor kept = record(1000, 300);
  EXPECT_EQ(taken(), 1000);
  EXPECT_EQ(activations(), 700);
  ledger().reset_peak();
  const at::Tensor beside = make(50);
  record(500, 0);
  EXPECT_EQ(taken(), 1050) << "300 and 500 fit into what is taken";
  EXPECT_EQ((ledger().at_peak().allocated - before) / 4, 1050);
  record(900, 0);
  EXPECT_EQ(taken(), 1250);
  kept.reset();
  EXPECT_EQ(taken(), 1250) << "freed, and taken for the next time";
  EXPECT_EQ(activations(), 1200);
  ledger().free_recorded();
  EXPECT_EQ(taken(), 50);
}

INSTANTIATE_TEST_SUITE_P(Devices, LedgerTest, ::testing::Values(at::kCPU, at::kMeta, at::kCUDA));

// What oneDNN's scratch memory comes from.
TEST(CpuAllocator, GivesRawMemoryThatTheLedgerCounts) {
  install_allocators();
  c10::Allocator* allocator = c10::GetAllocator(c10::kCPU);
  const int64_t before = cpu_ledger().allocated();
  void* data = allocator->raw_allocate(size_t{1} << 20);
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(cpu_ledger().allocated(), before + (int64_t{1} << 20));
  allocator->raw_deallocate(data);
  EXPECT_EQ(cpu_ledger().allocated(), before);
}

TEST(Ledger, EachDeviceHasItsOwn) {
  EXPECT_EQ(&ledger_of(at::kCPU), &cpu_ledger());
  EXPECT_EQ(&ledger_of(at::kMeta), &meta_ledger());
  EXPECT_EQ(&ledger_of(at::kCUDA), &cuda_ledger());
}

TEST(Ledger, ADevicesOwnRefusalShowsTheSameTable) {
  install_allocators();
  const CategoryGuard category(Category::Gradients);
  const at::Tensor live = at::empty({1 << 18}, at::kFloat);
  try {
    cpu_ledger().refused_by_device(5 * kMiB, "do not fit onto the device");
    FAIL() << "nothing was thrown";
  } catch (const OutOfMemory& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("5.00 MiB more for gradients"), std::string::npos) << text;
    EXPECT_NE(text.find("do not fit onto the device. Live:"), std::string::npos) << text;
  }
}

TEST(CpuAllocator, ReusesLargeBlocks) {
  install_allocators();
  const void* first = nullptr;
  {
    const at::Tensor a = at::empty({1 << 20}, at::kFloat);
    first = a.const_data_ptr();
  }
  const at::Tensor b = at::empty({1 << 20}, at::kFloat);
  EXPECT_EQ(first, b.const_data_ptr());
  EXPECT_GE(cpu_reserved(), cpu_ledger().allocated());
}

}  // namespace
}  // namespace snug::memory
