// ReLU, SiLU, GELU and others over the whole range of inputs, gated forms, slopes against finite
// differences.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/activation.h"

#include "unit/core/kernels/arrays.h"

namespace snug::kernels::cpu {
namespace {

const Activation kAll[] = {Activation::Relu, Activation::Silu,        Activation::GeluTanh,
                           Activation::Gelu, Activation::ReluSquared, Activation::Sigmoid};
constexpr double kCubic = 0.044715;
const double kRootTwoOverPi = std::sqrt(2 / M_PI);

double value_of(Activation activation, double x) {
  switch (activation) {
    case Activation::Relu:
      return x > 0 ? x : 0;
    case Activation::Silu:
      return x / (1 + std::exp(-x));
    case Activation::GeluTanh:
      return 0.5 * x * (1 + std::tanh(kRootTwoOverPi * (x + kCubic * x * x * x)));
    case Activation::Gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::ReluSquared:
      return x > 0 ? x * x : 0;
    case Activation::Sigmoid:
      return 1 / (1 + std::exp(-x));
  }
  return 0;
}

double slope_of(Activation activation, double x) {
  if (activation == Activation::Relu) return x > 0 ? 1 : 0;
  if (activation == Activation::ReluSquared) return x > 0 ? 2 * x : 0;
  if (activation == Activation::Sigmoid) return 1 / (1 + std::exp(-x)) * (1 / (1 + std::exp(x)));
  if (activation == Activation::Silu) {
    const double s = 1 / (1 + std::exp(-x));
    return s * (1 + x * (1 - s));
  }
  if (activation == Activation::GeluTanh) {
    const double t = std::tanh(kRootTwoOverPi * (x + kCubic * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kRootTwoOverPi * (1 + 3 * kCubic * x * x);
  }
  return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
}

// Dense where the functions bend, and out to where they are lines.
std::vector<double> inputs() {
  std::vector<double> x = {0.0, -0.0, 1e-30, -1e-30, 1e-6, -1e-6, 1e4, -1e4, 60000, -60000};
  for (double v = -20; v <= 20; v += 0.00713) x.push_back(v);
  return x;
}

TEST(Activation, SlopesOfTheReferenceAreFiniteDifferences) {
  for (const Activation activation : kAll) {
    for (double x = -6; x < 6; x += 0.37) {
      const double difference =
          (value_of(activation, x + 1e-6) - value_of(activation, x - 1e-6)) / 2e-6;
      EXPECT_NEAR(slope_of(activation, x), difference, 1e-8);
    }
  }
}

TEST(Activation, ForwardAndBackwardAreTheFormulas) {
  on_every_isa([] {
    for (const Scalar type : kAllTypes) {
      for (const Activation activation : kAll) {
        const Array x(type, inputs(), 1);
        const Array dy = random_array(type, x.size(), 1, 1.0, 1);
        std::vector<double> y, dx;
        for (int64_t i = 0; i < x.size(); ++i) {
          // A square may be beyond the type's largest number.
          const double value = value_of(activation, x[i]);
          y.push_back(std::isinf(rounded(value, type)) ? INFINITY : value);
          dx.push_back(dy[i] * slope_of(activation, x[i]));
        }
        Array got(type, x.size(), 1), gradient = dy;
        activation_forward({.activation = activation,
                            .type = type,
                            .count = x.size(),
                            .x = x.data(),
                            .y = got.data()});
        activation_backward({.activation = activation,
                             .type = type,
                             .count = x.size(),
                             .dy = gradient.data(),
                             .x = x.data(),
                             .dx = gradient.data()});
        // The value once more, over x.
        Array again = x, same = dy;
        activation_backward({.activation = activation,
                             .type = type,
                             .count = x.size(),
                             .dy = same.data(),
                             .x = again.data(),
                             .dx = same.data(),
                             .y = again.data()});
        EXPECT_TRUE(same == gradient);
        const double u = 1.01 * unit_roundoff(type);
        const double tiny = type == Scalar::F16 ? 0x1p-24 : 0;
        expect_near(got.values(), y, within(y, u + 3e-7, 2e-7 + tiny), name_of(type));
        expect_near(again.values(), y, within(y, u + 6e-7, 2e-7 + tiny), name_of(type));
        expect_near(gradient.values(), dx, within(dx, u + 3e-7, 2e-6 + tiny), name_of(type));
        EXPECT_TRUE(got.guards_intact() && gradient.guards_intact());
      }
    }
  });
}

TEST(Activation, SiluHasFloatPrecisionInItsTail) {
  on_every_isa([] {
    const Array x(Scalar::F32, {-10, -30, -60, -80, -3, 3, 15});
    Array y(Scalar::F32, x.size());
    activation_forward({.count = x.size(), .x = x.data(), .y = y.data()});
    for (int64_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(y[i] / value_of(Activation::Silu, x[i]), 1, 4e-7) << x[i];
    }
  });
}

TEST(Activation, NotANumberAndInfinityPass) {
  on_every_isa([] {
    for (const Activation activation : kAll) {
      const Array x(Scalar::F32, {NAN, INFINITY, 1e38});
      Array y(Scalar::F32, 3), dx(Scalar::F32, 3);
      const Array one(Scalar::F32, {1, 1, 1});
      activation_forward({.activation = activation, .count = 3, .x = x.data(), .y = y.data()});
      activation_backward(
          {.activation = activation, .count = 3, .dy = one.data(), .x = x.data(), .dx = dx.data()});
      EXPECT_TRUE(std::isnan(y[0]) && std::isnan(dx[0]));
      const bool is_sigmoid = activation == Activation::Sigmoid;
      EXPECT_EQ(y[1], is_sigmoid ? 1 : INFINITY);
      if (activation == Activation::ReluSquared) continue;
      EXPECT_EQ(y[2], is_sigmoid ? 1 : x[2]);
      EXPECT_EQ(dx[2], is_sigmoid ? 0 : 1);
    }
  });
}

struct Shape {
  int64_t rows, features, input_stride, output_stride;
};

// Strides of a fused projection: gate and up side by side in rows of 2F.
TEST(Gated, ForwardAndBackwardInPlaceWithStrides) {
  on_every_isa([] {
    for (const Shape s : {Shape{1, 1, 2, 1}, Shape{3, 7, 14, 9}, Shape{0, 100, 200, 100},
                          Shape{5, 576, 1152, 576}, Shape{40, 100, 201, 101}}) {
      for (const Scalar type : kAllTypes) {
        const Array fused = random_array(type, s.rows * s.input_stride, 3, 2.0, 1);
        const Array dy = random_array(type, s.rows * s.output_stride, 4, 1.0, 1);
        Array again = dy;
        Array y(type, s.rows * s.output_stride, 1), gradient = fused;
        auto* gate = static_cast<char*>(gradient.data());
        auto* up = gate + s.features * scalar_bytes(type);
        gated_forward({.type = type,
                       .rows = s.rows,
                       .features = s.features,
                       .gate = gate,
                       .up = up,
                       .y = y.data(),
                       .input_stride = s.input_stride,
                       .output_stride = s.output_stride});
        gated_backward({.type = type,
                        .rows = s.rows,
                        .features = s.features,
                        .dy = again.data(),
                        .gate = gate,
                        .up = up,
                        .dgate = gate,
                        .dup = up,
                        .y = again.data(),
                        .input_stride = s.input_stride,
                        .output_stride = s.output_stride});
        std::vector<double> expected_y(y.size()), expected_again = dy.values();
        std::vector<double> expected = fused.values();
        for (int64_t row = 0; row < s.rows; ++row) {
          for (int64_t i = 0; i < s.features; ++i) {
            const int64_t g = row * s.input_stride + i, u = g + s.features;
            const int64_t out = row * s.output_stride + i;
            expected_y[out] = value_of(Activation::Silu, fused[g]) * fused[u];
            expected_again[out] = expected_y[out];
            expected[g] = dy[out] * fused[u] * slope_of(Activation::Silu, fused[g]);
            expected[u] = dy[out] * value_of(Activation::Silu, fused[g]);
          }
        }
        const double relative = 1.01 * unit_roundoff(type) + 1e-6;
        expect_near(y.values(), expected_y, within(expected_y, relative, 1e-6), name_of(type));
        expect_near(again.values(), expected_again, within(expected_again, relative, 1e-6),
                    name_of(type));
        expect_near(gradient.values(), expected, within(expected, relative, 2e-6), name_of(type));
        EXPECT_TRUE(y.guards_intact() && gradient.guards_intact() && again.guards_intact());
      }
    }
  });
}

TEST(Gated, EveryActivationAndThreadCount) {
  const int64_t rows = 900, features = 130, count = rows * features;
  for (const Activation activation : kAll) {
    const Array gate = random_array(Scalar::BF16, count, 1, 2.0);
    const Array up = random_array(Scalar::BF16, count, 2);
    std::vector<Array> results;
    for (const int threads : {1, 2, 3}) {
      Array y(Scalar::BF16, count);
      gated_forward({.activation = activation,
                     .type = Scalar::BF16,
                     .rows = rows,
                     .features = features,
                     .gate = gate.data(),
                     .up = up.data(),
                     .y = y.data(),
                     .num_threads = threads});
      results.push_back(y);
    }
    EXPECT_TRUE(results[0] == results[1] && results[0] == results[2]);
    std::vector<double> expected;
    for (int64_t i = 0; i < count; ++i) expected.push_back(value_of(activation, gate[i]) * up[i]);
    expect_near(results[0].values(), expected, within(expected, 0x1.02p-8, 1e-6), "gated");
  }
}

// gpt-oss's: at the limit, below and above, where what was clamped has no gradient.
TEST(Gated, ClampedIsTheFormula) {
  const GateClamp clamp{.limit = 0.75F, .alpha = 1.702F};
  std::vector<double> gates, ups;
  for (double gate = -6; gate <= 2; gate += 0.125)
    for (double up = -2; up <= 2; up += 0.125) {
      gates.push_back(gate);
      ups.push_back(up);
    }
  on_every_isa([&] {
    for (const Scalar type : kAllTypes) {
      const Array gate(type, gates), up(type, ups);
      const Array dy = random_array(type, gate.size(), 4);
      Array y(type, gate.size(), 1), dgate(type, gate.size(), 1), dup(type, gate.size(), 1);
      gated_forward({.clamp = clamp,
                     .type = type,
                     .rows = 1,
                     .features = gate.size(),
                     .gate = gate.data(),
                     .up = up.data(),
                     .y = y.data()});
      gated_backward({.clamp = clamp,
                      .type = type,
                      .rows = 1,
                      .features = gate.size(),
                      .dy = dy.data(),
                      .gate = gate.data(),
                      .up = up.data(),
                      .dgate = dgate.data(),
                      .dup = dup.data()});
      std::vector<double> expected_y, expected_gate, expected_up;
      for (int64_t i = 0; i < gate.size(); ++i) {
        const double limit = clamp.limit, alpha = clamp.alpha;
        const double g = std::min<double>(gate[i], limit);
        const double u = std::clamp<double>(up[i], -limit, limit);
        const double s = 1 / (1 + std::exp(-alpha * g));
        expected_y.push_back(g * s * (u + 1));
        expected_gate.push_back(gate[i] > limit ? 0
                                                : dy[i] * (u + 1) * s * (1 + alpha * g * (1 - s)));
        expected_up.push_back(std::abs(up[i]) > limit ? 0 : dy[i] * g * s);
      }
      const double relative = 1.01 * unit_roundoff(type) + 1e-6;
      expect_near(y.values(), expected_y, within(expected_y, relative, 1e-6), "y");
      expect_near(dgate.values(), expected_gate, within(expected_gate, relative, 2e-6), "dgate");
      expect_near(dup.values(), expected_up, within(expected_up, relative, 2e-6), "dup");
    }
  });
}

}  // namespace
}  // namespace snug::kernels::cpu
