// Each optimizer on a device against the CPU: weights and states step by step, with tensors that
// are no whole blocks or vectors. Those whose elements know nothing of each other, or of their
// block's largest alone, give the same bits (core/kernels/optimizers.h); Adafactor adds up
// rows and columns in another order. ctest runs it with cuda; SNUG_TEST_DEVICE=cpu holds the test
// to itself.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "support/test_device.h"
#include "unit/core/optim/optim_testing.h"

namespace snug::optim {
namespace {

struct Pairing {
  Case c;
  // 0: the same bits. Else of float32, relative to a tensor's largest; 16 bits: one ulp.
  double tolerance = 0;
};
void PrintTo(const Pairing& p, std::ostream* out) { *out << p.c.name; }

recipe::OptimizerOptions with_masters(recipe::OptimizerOptions options) {
  options.master_weights = true;
  return options;
}
recipe::OptimizerOptions by_chance(recipe::OptimizerOptions options) {
  options.stochastic_rounding = true;
  return options;
}

recipe::OptimizerOptions with_momentum(recipe::OptimizerOptions options) {
  options.momentum = 0.9;
  return options;
}

const std::vector<Pairing> kPairings = {
    {{"AdamW", options_of("adamw")}},
    {{"AdamWBf16", options_of("adamw"), at::kBFloat16, at::kBFloat16}},
    {{"Lion", options_of("lion")}},
    {{"LionMixed", options_of("lion"), at::kFloat, at::kBFloat16}},
    {{"LionBf16", options_of("lion"), at::kBFloat16, at::kBFloat16}},
    {{"LionByChance", by_chance(options_of("lion")), at::kBFloat16, at::kFloat}},
    {{"LionMasters", with_masters(options_of("lion")), at::kBFloat16, at::kBFloat16}},
    {{"Adafactor", options_of("adafactor")}, 1e-5},
    {{"AdafactorBf16", options_of("adafactor"), at::kBFloat16, at::kBFloat16}, 1e-5},
    {{"AdamW8bit", options_of("adamw_8bit")}},
    {{"AdamW8bitBf16", options_of("adamw_8bit"), at::kBFloat16, at::kBFloat16}},
    {{"AdamW8bitMasters", with_masters(options_of("adamw_8bit")), at::kBFloat16, at::kFloat}},
    {{"Sgd", options_of("sgd")}},
    {{"SgdMomentum", with_momentum(options_of("sgd"))}},
    {{"SgdByChance", with_momentum(by_chance(options_of("sgd"))), at::kBFloat16, at::kFloat}}};

class OptimizerPairTest : public ::testing::TestWithParam<Pairing> {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }
  void SetUp() override {
    if (std::getenv("SNUG_TEST_DEVICE") == nullptr)
      GTEST_SKIP() << "compares a device with the cpu";
    if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
  }
};

void expect_near(const NamedTensor& expected, const NamedTensor& got, double tolerance) {
  ASSERT_EQ(expected.name, got.name);
  SCOPED_TRACE(expected.name);
  const at::Tensor on_host = got.tensor.cpu();
  if (tolerance == 0) {
    EXPECT_TRUE(at::equal(expected.tensor, on_host));
    return;
  }
  const at::Tensor e = expected.tensor.to(at::kDouble);
  const double ulp = expected.tensor.scalar_type() == at::kFloat ? 0 : 1.0 / 128;
  const at::Tensor allowed = e.abs() * ulp + e.abs().max() * tolerance;
  const at::Tensor beyond = (on_host.to(at::kDouble) - e).abs() - allowed;
  EXPECT_LE(beyond.max().item<double>(), 0);
}

// Both go on from the same states at every step, so that no difference grows.
TEST_P(OptimizerPairTest, StepsLikeTheCpu) {
  const Pairing& pairing = GetParam();
  // Matrices above and below what 8 bits are kept for, a vector, a last block of three.
  const std::vector<std::vector<int64_t>> shapes = {{130, 67}, {16, 16}, {37}, {3, 1409}};
  Bench host(pairing.c, at::kCPU, shapes), device(pairing.c, tests::test_device(), shapes);
  for (uint64_t step = 0; step < 3; ++step) {
    SCOPED_TRACE(step);
    for (Bench* bench : {&host, &device}) {
      bench->set_gradients(10 + step, pairing.c.gradients);
      bench->optimizer->step({.lr = bench->lr, .gradient_scale = 0.5});
    }
    for (size_t i = 0; i < shapes.size(); ++i) {
      expect_near(host.parameters[i], device.parameters[i], pairing.tolerance);
      device.parameters[i].tensor.copy_(host.parameters[i].tensor);
    }
    const auto expected = host.optimizer->states(), got = device.optimizer->states();
    ASSERT_EQ(expected.size(), got.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      expect_near(expected[i], got[i], pairing.tolerance);
      got[i].tensor.copy_(expected[i].tensor);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, OptimizerPairTest, ::testing::ValuesIn(kPairings),
                         [](const auto& info) { return info.param.c.name; });

}  // namespace
}  // namespace snug::optim
