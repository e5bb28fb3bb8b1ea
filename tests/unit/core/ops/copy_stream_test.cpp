// SPDX-License-Identifier: Apache-2.0
#include "core/ops/device/copy_stream.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>

#include "base/error.h"
#include "core/memory/ledger.h"
#include "core/memory/placement.h"
#include "support/test_device.h"

namespace snug::ops {
namespace {

class CopyStreamTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }
  const at::Tensor from_ = at::arange(10, at::kFloat);
  const at::Tensor to_ = at::zeros({10});
  CopyStream stream_{at::kCPU};
};

TEST_F(CopyStreamTest, OnACpuCopiesHappenAtOnce) {
  stream_.wait(stream_.start({{.to = to_, .from = from_}}));
  EXPECT_TRUE(at::equal(to_, from_));
}

TEST_F(CopyStreamTest, LateOnesHappenWhenWaitedForInTheirOrder) {
  stream_.set_late(true);
  const at::Tensor second = at::zeros({10}), third = at::zeros({10});
  stream_.start({{.to = to_, .from = from_}});
  const auto ticket = stream_.start({{.to = second, .from = to_}});
  stream_.start({{.to = third, .from = from_}});
  EXPECT_EQ(to_.sum().item<float>(), 0);
  stream_.wait(ticket);
  EXPECT_TRUE(at::equal(second, from_));
  EXPECT_EQ(third.sum().item<float>(), 0);
  stream_.wait(ticket);  // once more changes nothing
  stream_.wait_for_all();
  EXPECT_TRUE(at::equal(third, from_));
}

TEST_F(CopyStreamTest, CopiesConvertOrTakeWholeStorages) {
  const at::Tensor rounded = at::zeros({10}, at::kBFloat16), bytes = at::zeros({10});
  stream_.wait_on_host(
      stream_.start({{.to = rounded, .from = from_},
                     {.to = bytes, .from = from_.slice(0, 3, 5), .whole_storage = true}}));
  EXPECT_TRUE(at::equal(rounded.to(at::kFloat), from_));
  EXPECT_TRUE(at::equal(bytes, from_));
}

// A block of the pool is given back while a copy still reads it. Copies that land in it come later;
// what the program writes would not.
TEST_F(CopyStreamTest, LandsOnlyInMemoryThatCopiesWriteFirst) {
  const auto on_host = [](memory::HostUse use) {
    return memory::empty_on_host({10}, at::kFloat, at::kCPU, memory::Category::Gradients, use);
  };
  const at::Tensor landing = on_host(memory::HostUse::Landing);
  stream_.wait(stream_.start({{.to = landing, .from = from_}}));
  EXPECT_TRUE(at::equal(landing, from_));
  const at::Tensor home = on_host(memory::HostUse::Written);
  EXPECT_THROW(stream_.start({{.to = home, .from = from_}}), InternalError);
  stream_.wait(stream_.start({{.to = to_, .from = home}}));
}

// As where a run ends amid a step and the next one takes its memory.
TEST_F(CopyStreamTest, ItsEndWaitsForItsCopies) {
  const at::Device device = tests::test_device();
  const at::Tensor there = at::empty({10}, at::TensorOptions().device(device));
  const at::Tensor home = memory::empty_on_host(
      {10}, at::kFloat, device, memory::Category::Parameters, memory::HostUse::Written);
  home.copy_(from_);
  std::make_unique<CopyStream>(device)->start({{.to = there, .from = home}});
  home.zero_();
  EXPECT_TRUE(at::equal(there.cpu(), from_));
}

TEST_F(CopyStreamTest, NothingToWaitFor) {
  stream_.wait(nullptr);
  stream_.wait_on_host(stream_.start({}));
  stream_.wait_for_all();
}

}  // namespace
}  // namespace snug::ops
