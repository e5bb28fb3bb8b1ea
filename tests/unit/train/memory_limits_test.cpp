// What a run may take of a GPU, and whether a plan stays within it: bytes that the allocator
// reserves, not those that tensors ask for.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/error.h"
#include "engine/host.h"
#include "train/run_plan.h"

namespace snug::train {
namespace {

// An 80 GB card of which 79.2 GiB are to be had, half a GiB by the driver.
constexpr engine::GpuMemory kCard{.free = 78 * kGiB, .reserved = kGiB / 16, .driver = kGiB / 2};

TEST(MemoryLimits, WithoutABudgetAreWhatTheDeviceHasLeft) {
  const engine::MemoryLimits limits = engine::limits_of("", kCard);
  EXPECT_EQ(limits.budget_bytes, 0);
  EXPECT_LT(limits.reserved_bytes, kCard.free + kCard.reserved) << "kernels are loaded later";
  EXPECT_GT(limits.reserved_bytes, kCard.free - kGiB / 2);
}

TEST(MemoryLimits, OfABudgetAreWhatTheDriverLeaves) {
  const engine::MemoryLimits limits = engine::limits_of("16GiB", kCard);
  EXPECT_EQ(limits.budget_bytes, 16 * kGiB - kCard.driver);
  EXPECT_EQ(limits.reserved_bytes, limits.budget_bytes);
  EXPECT_THROW(engine::limits_of("0.5GiB", kCard), UserError);
}

TEST(MemoryLimits, AreNoMoreThanThereIsWhateverTheBudget) {
  EXPECT_EQ(engine::limits_of("100GiB", kCard).reserved_bytes,
            engine::limits_of("", kCard).reserved_bytes);
  const engine::GpuMemory shared{.free = 10 * kGiB, .reserved = 0, .driver = kGiB / 2};
  EXPECT_LT(engine::limits_of("16GiB", shared).reserved_bytes, 10 * kGiB)
      << "another program has the rest";
}

engine::Host gpu(int64_t limit) {
  return {.device = {at::kCUDA, 0},
          .library_bytes = 8 * kMiB,
          .reserved_limit = limit,
          .library_reserved = 20 * kMiB};
}

TEST(Room, OnAGpuIsForWhatIsReserved) {
  plan::Prediction prediction;
  prediction.peak_allocated = 78 * kGiB;
  prediction.peak_reserved = 80 * kGiB;
  EXPECT_FALSE(room_of(gpu(79 * kGiB), prediction).fits()) << "78 of 79 GiB, in segments 80";
  EXPECT_TRUE(room_of(gpu(81 * kGiB), prediction).fits());
  EXPECT_FALSE(room_of(gpu(80 * kGiB), prediction).fits()) << "libraries have a part";
  // The allocator may give segments back and get through, or not.
  prediction.peak_reserved = 70 * kGiB;
  prediction.fits_reserved = false;
  EXPECT_FALSE(room_of(gpu(79 * kGiB), prediction).fits());
}

TEST(Room, OnACpuIsForWhatIsAllocated) {
  plan::Prediction prediction;
  prediction.peak_allocated = 2 * kGiB;
  prediction.peak_reserved = 3 * kGiB;
  EXPECT_TRUE(room_of({.budget_bytes = 2 * kGiB}, prediction).fits());
  EXPECT_FALSE(room_of({.budget_bytes = 2 * kGiB - 1}, prediction).fits());
  EXPECT_TRUE(room_of({}, prediction).fits()) << "no budget, no limit";
}

}  // namespace
}  // namespace snug::train
