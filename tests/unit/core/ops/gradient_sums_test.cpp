// SPDX-License-Identifier: Apache-2.0
#include "core/ops/linear/linear.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/memory/ledger.h"
#include "core/ops/device/device.h"

namespace snug::ops {
namespace {

class GradientSumsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }
  GradientSumsTest() { weight_.set_requires_grad(true); }

  // Rows of ones make a gradient of `count` in each element.
  void add_pieces(int count, double value = 1) const {
    for (int i = 0; i < count; ++i)
      add_weight_gradient(weight_, at::full({1, 4}, value, at::kBFloat16),
                          at::ones({1, 3}, at::kBFloat16));
  }
  const at::Tensor weight_ = at::zeros({4, 3}, at::kBFloat16);
};

// 256 + 1 is 256 in bfloat16, however often.
TEST_F(GradientSumsTest, RoundOnce) {
  add_pieces(300);
  EXPECT_EQ(weight_.grad().max().item<float>(), 256) << "the reason for it all";
  weight_.mutable_grad().reset();
  GradientSums sums({weight_});
  add_pieces(300);
  sums.finish();
  EXPECT_EQ(weight_.grad().scalar_type(), at::kBFloat16);
  EXPECT_TRUE(weight_.grad().eq(300).all().item<bool>());
}

TEST_F(GradientSumsTest, AreAddedToWhatWasThere) {
  add_pieces(1, 1000);
  const at::Tensor before = weight_.grad();
  GradientSums sums({weight_});
  add_pieces(24);
  sums.finish();
  EXPECT_TRUE(weight_.grad().is_same(before));
  EXPECT_TRUE(before.eq(1024).all().item<bool>());
}

TEST_F(GradientSumsTest, GoIntoTheRoomThatIsSet) {
  const at::Tensor room = at::full({4, 3}, 7, at::kBFloat16);
  set_gradient_slot(weight_, room);
  GradientSums sums({weight_});
  add_pieces(3);
  sums.finish();
  EXPECT_TRUE(weight_.grad().is_same(room));
  EXPECT_TRUE(room.eq(3).all().item<bool>()) << "overwritten at first";
}

TEST_F(GradientSumsTest, LeaveFloat32GradientsAlone) {
  const at::Tensor weight = at::zeros({4, 3}).set_requires_grad(true);
  const int64_t before = memory::cpu_ledger().allocated();
  const GradientSums sums({weight});
  EXPECT_EQ(memory::cpu_ledger().allocated(), before);
}

TEST_F(GradientSumsTest, PutBackWhatWasThereWhenTheyAreGivenUp) {
  add_pieces(1, 5);
  const at::Tensor before = weight_.grad();
  {
    const GradientSums sums({weight_});
    add_pieces(2);
  }
  EXPECT_TRUE(weight_.grad().is_same(before));
  EXPECT_TRUE(before.eq(5).all().item<bool>());
  { const GradientSums sums({weight_}); }
  EXPECT_FALSE(take_gradient_slot(weight_).defined()) << "no room is left behind";
}

}  // namespace
}  // namespace snug::ops
