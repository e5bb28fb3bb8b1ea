// Where the host waits for its device: what a GPU would make it wait for is counted on meta, which
// stands in for it.
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/device/host_waits.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/memory/ledger.h"
#include "core/memory/placement.h"
#include "core/ops/attention/borders.h"
#include "core/ops/device/copy_stream.h"
#include "core/ops/device/device.h"
#include "core/ops/device/upload.h"
#include "core/ops/elementwise.h"
#include "support/test_device.h"

namespace snug::ops {
namespace {

class HostWaits : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }

  template <class Run>
  static int64_t waits_of(const Run& run) {
    const int64_t before = num_host_waits();
    run();
    return num_host_waits() - before;
  }
  static at::Tensor on_device(int64_t count, at::ScalarType type = at::kFloat) {
    return at::empty({count}, at::TensorOptions().device(at::kMeta).dtype(type));
  }
  static at::Tensor on_host(int64_t count, at::ScalarType type = at::kFloat) {
    return memory::empty_on_host({count}, type, at::kMeta, memory::Category::Data,
                                 memory::HostUse::Written);
  }
  const StandInGuard gpu_{at::kCUDA};
};

TEST_F(HostWaits, ACpuHasNobodyToWaitFor) {
  const at::Tensor x = at::ones({3});
  EXPECT_EQ(waits_of([&] {
              EXPECT_EQ(read_number(x.sum()), 3);
              EXPECT_EQ(sum_of_squares({x, x}), 6);
              ops::copy(at::empty({3}), x);
            }),
            0);
}

TEST_F(HostWaits, ReadingANumberIsOne) {
  EXPECT_EQ(waits_of([&] { read_number(on_device(1)); }), 1);
  EXPECT_EQ(waits_of([&] { sum_of_squares({on_device(5), on_device(7)}); }), 1);
}

TEST_F(HostWaits, ASumOfSquaresIsReadOnce) {
  EXPECT_EQ(waits_of([&] {
              SumOfSquares sum;
              for (int i = 0; i < 4; ++i) sum.add({on_device(100)});
              sum.value();
            }),
            1);
  SumOfSquares sum;
  sum.add({at::full({2}, 3.0F)});
  sum.add({at::full({4}, 0.5F), at::ones({1})});
  EXPECT_EQ(sum.value(), 20);
  EXPECT_EQ(sum.value(), 0) << "it starts again";
}

// What the host updates lies there, and takes no scratch of the device.
TEST_F(HostWaits, GradientsAtHomeAreAddedUpThere) {
  memory::Ledger& device = memory::meta_ledger();
  device.reset_peak();
  const int64_t before = device.allocated();
  const at::Tensor gradient = on_host(1 << 20);
  EXPECT_EQ(waits_of([&] { sum_of_squares({gradient}); }), 0);
  EXPECT_EQ(device.at_peak().allocated, before);
}

TEST_F(HostWaits, ACopyOverTheLinkIsOneUnlessItNeedNotBeDone) {
  const at::Tensor here = on_host(8), there = on_device(8);
  EXPECT_EQ(waits_of([&] { ops::copy(there, here); }), 1);
  EXPECT_EQ(waits_of([&] { ops::copy(here, there); }), 1);
  EXPECT_EQ(waits_of([&] { ops::copy(there, here, Wait::No); }), 0);
  EXPECT_EQ(waits_of([&] { ops::copy(there, on_device(8)); }), 0) << "within the device";
}

// The device converts float32 numbers at home for a bfloat16 weight, in few bytes, and nobody
// waits.
TEST_F(HostWaits, NumbersAreConvertedOnTheDeviceInPlannedScratch) {
  constexpr int64_t kMany = int64_t{64} << 20;
  const at::Tensor here = on_host(kMany), there = on_device(kMany, at::kBFloat16);
  memory::Ledger& device = memory::meta_ledger();
  device.reset_peak();
  const int64_t before = device.allocated();
  EXPECT_EQ(waits_of([&] { ops::copy(there, here, Wait::No); }), 0);
  const int64_t scratch = device.at_peak().allocated - before;
  EXPECT_GT(scratch, 0);
  EXPECT_LE(scratch, int64_t{8} << 20);
  EXPECT_EQ(device.allocated(), before);
}

TEST_F(HostWaits, CopiesThatAreWaitedForOnTheHostAreOne) {
  CopyStream copies(at::kMeta);
  const at::Tensor landing = memory::empty_on_host(
      {8}, at::kFloat, at::kMeta, memory::Category::Data, memory::HostUse::Landing);
  const auto ticket = copies.start({{.to = landing, .from = on_device(8)}});
  EXPECT_EQ(waits_of([&] { copies.wait(ticket); }), 0);
  EXPECT_EQ(waits_of([&] { copies.wait_on_host(ticket); }), 1);
  EXPECT_EQ(waits_of([&] { copies.wait_on_host(copies.start({})); }), 0) << "nothing is under way";
}

TEST_F(HostWaits, AnUploadIsNone) {
  const std::vector<int32_t> values = {0, 3, 7};
  memory::Ledger& host = memory::meta_host_ledger();
  const int64_t before = host.allocated();
  EXPECT_EQ(waits_of([&] {
              Upload upload(at::kMeta);
              const at::Tensor sent = upload.tensor(values.data(), {3}, at::kInt);
              EXPECT_TRUE(sent.is_meta());
              EXPECT_EQ(host.allocated() - before, 12) << "planned until all is over";
            }),
            0);
  EXPECT_EQ(host.allocated(), before);
}

TEST_F(HostWaits, AnUploadThatIsUnderWayAtItsEndIsOne) {
  const at::Device device = tests::test_device();
  if (!device.is_cuda()) GTEST_SKIP() << "a cpu copies at once";
  const at::Tensor x = at::ones({512, 512}, at::TensorOptions().device(device));
  const std::vector<int32_t> values = {0, 3, 7};
  EXPECT_EQ(waits_of([&] {
              Upload upload(device);
              for (int i = 0; i < 8; ++i) at::mm(x, x);
              upload.tensor(values.data(), {3}, at::kInt);
            }),
            1);
}

TEST_F(HostWaits, OnACpuAnUploadFillsATensor) {
  const std::vector<float> values = {1, 2, 3, 4};
  memory::Ledger& host = memory::cpu_host_ledger();
  const int64_t before = host.allocated();
  Upload upload(at::kCPU);
  EXPECT_TRUE(
      at::equal(upload.tensor(values.data(), {2, 2}, at::kFloat), at::tensor(values).view({2, 2})));
  EXPECT_EQ(host.allocated(), before) << "a cpu has no second copy";
}

TEST_F(HostWaits, BordersThatTheHostMadeAreNotReadBack) {
  const std::vector<int32_t> values = {0, 3, 7};
  const Borders known(on_device(3, at::kInt), values);
  EXPECT_EQ(waits_of([&] { EXPECT_EQ(*known.host(), values); }), 0);
  EXPECT_EQ(waits_of([&] { EXPECT_EQ(*known.with(on_device(3, at::kInt)).host(), values); }), 0);
  EXPECT_EQ(waits_of([&] { Borders(on_device(3, at::kInt)).host(); }), 1);
  EXPECT_EQ(waits_of([&] { EXPECT_EQ(*Borders(at::tensor(values)).host(), values); }), 0);
}

}  // namespace
}  // namespace snug::ops
