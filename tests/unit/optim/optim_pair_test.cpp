// Each optimizer on the test's device against the CPU: weights and states after some steps, with
// tensors that are no whole blocks or vectors. On the cpu it holds the optimizers to themselves;
// ctest runs it with cuda too.
// SPDX-License-Identifier: Apache-2.0
#include "support/test_device.h"
#include "unit/optim/optim_testing.h"

namespace snug::optim {
namespace {

struct Pairing {
  Case c;
  // In float32 sums are the same but for their order; an 8-bit state at the border of two codes may
  // go to either, which moves it by a code's width and the weight by a part of a step.
  double weight_tolerance = 1e-6;
  bool holds_states = true;
};
void PrintTo(const Pairing& p, std::ostream* out) { *out << p.c.name; }

config::OptimizerOptions with_masters(config::OptimizerOptions options) {
  options.master_weights = true;
  return options;
}
config::OptimizerOptions by_chance(config::OptimizerOptions options) {
  options.stochastic_rounding = true;
  return options;
}

constexpr double kBf16 = 1.0 / 128;

const std::vector<Pairing> kPairings = {
    {{"AdamW", options_of("adamw")}},
    {{"AdamWBf16", options_of("adamw"), at::kBFloat16, at::kBFloat16}, kBf16},
    {{"Lion", options_of("lion")}},
    {{"LionMixed", options_of("lion"), at::kFloat, at::kBFloat16}},
    {{"LionBf16", options_of("lion"), at::kBFloat16, at::kBFloat16}, kBf16},
    {{"LionByChance", by_chance(options_of("lion")), at::kBFloat16, at::kFloat}, kBf16},
    {{"LionMasters", with_masters(options_of("lion")), at::kBFloat16, at::kBFloat16}, kBf16},
    {{"Adafactor", options_of("adafactor")}, 1e-5},
    {{"AdafactorBf16", options_of("adafactor"), at::kBFloat16, at::kBFloat16}, kBf16},
    {{"AdamW8bit", options_of("adamw_8bit")}, 2e-3, false},
    {{"AdamW8bitBf16", options_of("adamw_8bit"), at::kBFloat16, at::kBFloat16}, kBf16, false},
    {{"AdamW8bitMasters", with_masters(options_of("adamw_8bit")), at::kBFloat16, at::kFloat},
     kBf16,
     false},
    {{"Sgd", options_of("sgd")}}};

class OptimizerPairTest : public ::testing::TestWithParam<Pairing> {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }
  void SetUp() override {
    if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
  }
};

void expect_near(const NamedTensor& expected, const NamedTensor& got, double tolerance) {
  ASSERT_EQ(expected.name, got.name);
  const at::Tensor e = expected.tensor.to(at::kDouble);
  const at::Tensor difference = (got.tensor.cpu().to(at::kDouble) - e).abs();
  EXPECT_LE(difference.max().item<double>(), tolerance * e.abs().max().item<double>())
      << expected.name;
}

TEST_P(OptimizerPairTest, StepsLikeTheCpu) {
  const Pairing& pairing = GetParam();
  // Matrices above and below what 8 bits are kept for, a vector, a last block of three.
  const std::vector<std::vector<int64_t>> shapes = {{130, 67}, {16, 16}, {37}, {3, 1409}};
  Bench host(pairing.c, at::kCPU, shapes), device(pairing.c, tests::test_device(), shapes);
  for (uint64_t step = 0; step < 4; ++step) {
    for (Bench* bench : {&host, &device}) {
      bench->set_gradients(10 + step, pairing.c.gradients);
      bench->optimizer->step({.lr = bench->lr, .gradient_scale = 0.5});
    }
  }
  for (size_t i = 0; i < shapes.size(); ++i)
    expect_near(host.parameters[i], device.parameters[i], pairing.weight_tolerance);
  const auto expected = host.optimizer->states(), got = device.optimizer->states();
  ASSERT_EQ(expected.size(), got.size());
  for (size_t i = 0; pairing.holds_states && i < expected.size(); ++i)
    expect_near(expected[i], got[i], pairing.weight_tolerance);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, OptimizerPairTest, ::testing::ValuesIn(kPairings),
                         [](const auto& info) { return info.param.c.name; });

}  // namespace
}  // namespace snug::optim
