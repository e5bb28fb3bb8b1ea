// Optimizers' kernels round every operation by itself: their steps have the bits of the formulas
// computed with floats that cannot be fused, on every instruction set. The GPU's kernels compute
// the same formulas with such floats, so that they give these bits too.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/optimizer_formulas.h"

#include <algorithm>

#include "core/kernels/optimizers.h"
#include "unit/core/kernels/arrays.h"

namespace snug::kernels::formulas_test {
namespace {

using cpu::Array;
using kernels::Scalar;

// One rounding an operation: a double has more than twice a float's bits, so that rounding its
// result is rounding the exact one.
struct OneRounding {
  OneRounding(double x) : value(static_cast<float>(x)) {}  // NOLINT(google-explicit-constructor)
  friend OneRounding operator+(OneRounding a, OneRounding b) { return wide(a) + wide(b); }
  friend OneRounding operator-(OneRounding a, OneRounding b) { return wide(a) - wide(b); }
  friend OneRounding operator*(OneRounding a, OneRounding b) { return wide(a) * wide(b); }
  friend OneRounding operator/(OneRounding a, OneRounding b) { return wide(a) / wide(b); }
  static double wide(OneRounding x) { return x.value; }
  float value;
};

constexpr int64_t kCount = 3001;  // no whole number of vectors

struct State {
  Array p = cpu::random_array(Scalar::F32, kCount, 1);
  Array g = cpu::random_array(Scalar::F32, kCount, 2, 0.1);
  Array m = cpu::random_array(Scalar::F32, kCount, 3, 0.1);
  Array v = Array(Scalar::F32, squares());

  static std::vector<double> squares() {
    std::vector<double> values = cpu::random_values(kCount, 4, 0.1);
    for (double& value : values) value *= value;
    return values;
  }
  bool operator==(const State& other) const { return p == other.p && m == other.m && v == other.v; }
};

TEST(OptimizerFormulas, AdamWRoundsEachOperation) {
  const kernels::AdamWOptions options = {.lr = 0.01, .beta2 = 0.95, .step = 3, .grad_scale = 0.7f};
  const kernels::AdamWFactors f = kernels::adamw_factors(options);
  State expected;
  for (int64_t i = 0; i < kCount; ++i) {
    OneRounding m = expected.m[i], v = expected.v[i];
    move_moments(m, v, OneRounding(expected.g[i]) * f.grad_scale, f);
    const OneRounding root = std::sqrt(OneRounding::wide(v));
    expected.p.set(i, adamw_weight(OneRounding(expected.p[i]), m, root, f).value);
    expected.m.set(i, m.value);
    expected.v.set(i, v.value);
  }
  cpu::on_every_isa([&] {
    State got;
    const kernels::AdamWTensor tensor = {.count = kCount,
                                         .param = got.p.data(),
                                         .grad = got.g.data(),
                                         .exp_avg = got.m.data(),
                                         .exp_avg_sq = got.v.data()};
    cpu::adamw_step({&tensor, 1}, options);
    EXPECT_TRUE(got == expected);
  });
}

struct Math {
  static OneRounding sign_of(OneRounding x) { return x.value > 0 ? 1 : x.value < 0 ? -1 : x; }
  static OneRounding square_root(OneRounding x) { return std::sqrt(OneRounding::wide(x)); }
};

template <class Formula>
void expect_each_operation_rounded(const kernels::ElementOptions& options) {
  constexpr int kStates = Formula::kStates;
  const auto f = Formula::factors(options);
  const bool keeps = kernels::keeps_states<Formula>(options);
  State expected;
  for (int64_t i = 0; i < kCount; ++i) {
    OneRounding p = expected.p[i], states[2] = {expected.m[i], expected.v[i]};
    const OneRounding g = OneRounding(expected.g[i]) * options.grad_scale;
    Formula::template update<Math>(p, g, states, f);
    expected.p.set(i, p.value);
    if (keeps) expected.m.set(i, states[0].value);
    if (keeps && kStates > 1) expected.v.set(i, states[1].value);
  }
  cpu::on_every_isa([&] {
    State got;
    void* const states[2] = {got.m.data(), got.v.data()};
    kernels::ElementTensor<kStates> tensor = {
        .count = kCount, .param = got.p.data(), .grad = got.g.data()};
    std::copy_n(states, kStates, tensor.states);
    cpu::element_step<Formula>({&tensor, 1}, options);
    EXPECT_TRUE(got == expected);
  });
}

TEST(OptimizerFormulas, LionRoundsEachOperation) {
  expect_each_operation_rounded<kernels::Lion>(
      {.lr = 0.01, .beta2 = 0.99, .weight_decay = 0.2, .grad_scale = 0.7f});
}

// A buffer that is there and not kept stays as it is.
TEST(OptimizerFormulas, SgdRoundsEachOperation) {
  expect_each_operation_rounded<kernels::Sgd>({.lr = 0.1, .weight_decay = 0.01});
  for (const bool first_step : {false, true})
    for (const bool nesterov : {false, true})
      expect_each_operation_rounded<kernels::Sgd>({.lr = 0.1,
                                                   .momentum = 0.9,
                                                   .weight_decay = 0.01,
                                                   .nesterov = nesterov,
                                                   .first_step = first_step,
                                                   .grad_scale = 0.7f});
}

TEST(OptimizerFormulas, EveryInstructionSetGives8BitStatesTheSameBits) {
  std::vector<State> weights;
  std::vector<std::vector<uint8_t>> codes;
  cpu::on_every_isa([&] {
    State state;
    std::vector<uint8_t> first(kCount), second(kCount);
    std::vector<float> first_absmax((kCount + 255) / 256), second_absmax(first_absmax.size());
    const kernels::AdamW8bitTensor tensor = {.count = kCount,
                                             .param = state.p.data(),
                                             .grad = state.g.data(),
                                             .exp_avg = first.data(),
                                             .exp_avg_sq = second.data(),
                                             .exp_avg_absmax = first_absmax.data(),
                                             .exp_avg_sq_absmax = second_absmax.data()};
    for (int64_t step = 1; step < 6; ++step)
      cpu::adamw_8bit_step({&tensor, 1}, {.step = step, .grad_scale = 0.7f});
    first.insert(first.end(), second.begin(), second.end());
    weights.push_back(state);
    codes.push_back(first);
  });
  for (size_t i = 1; i < codes.size(); ++i) {
    EXPECT_TRUE(weights[i] == weights[0]);
    EXPECT_EQ(codes[i], codes[0]);
  }
}

}  // namespace
}  // namespace snug::kernels::formulas_test
