// LayerNorm against sums in double, and its gradients against finite differences.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/layer_norm.h"

#include "unit/core/kernels/arrays.h"

namespace snug::kernels::cpu {
namespace layer_norm_test {

constexpr float kEps = 1e-5f;

struct Case {
  Scalar type;
  int64_t rows, dim;
  int shift;
  bool affine = true;
};

std::string describe(const Case& c) {
  return std::string(name_of(c.type)) + " rows " + std::to_string(c.rows) + " dim " +
         std::to_string(c.dim) + " shift " + std::to_string(c.shift);
}

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const Scalar type : kAllTypes) {
    for (const int64_t dim : {1, 7, 100, 576, 2048})
      for (const int64_t rows : {0, 1, 3, 100})
        if (rows * dim <= 100 * 576)
          result.push_back({type, rows, dim, static_cast<int>(rows + dim) % 2});
    result.push_back({type, 5, 77, 1, false});
  }
  result.push_back({Scalar::F32, 1024, 24, 0});
  return result;
}

// What a case norms: rows around 3, so that a mean which is not taken away shows.
Array input_of(const Case& c) {
  std::vector<double> values = random_values(c.rows * c.dim, 1, 2.0);
  for (double& v : values) v += 3;
  return {c.type, values, c.shift};
}

struct Row {
  double mean, rstd;
};

Row statistics(const std::vector<double>& x, int64_t row, int64_t dim) {
  const auto n = static_cast<double>(dim);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < dim; ++i) sum += x[row * dim + i];
  for (int64_t i = 0; i < dim; ++i) {
    const double deviation = x[row * dim + i] - sum / n;
    squares += deviation * deviation;
  }
  return {sum / n, 1 / std::sqrt(squares / n + kEps)};
}

struct Affine {
  Affine(const Case& c, Scalar type)
      : weight(random_array(type, c.dim, 2, 1.0, c.shift)),
        bias(random_array(type, c.dim, 3, 1.0, c.shift)),
        present(c.affine) {}
  double w(int64_t i) const { return present ? weight[i] : 1; }
  double b(int64_t i) const { return present ? bias[i] : 0; }
  const void* weight_data() const { return present ? weight.data() : nullptr; }
  const void* bias_data() const { return present ? bias.data() : nullptr; }

  Array weight, bias;
  bool present;
};

std::vector<double> reference(const std::vector<double>& x, const Affine& affine, const Case& c) {
  std::vector<double> y;
  for (int64_t row = 0; row < c.rows; ++row) {
    const Row s = statistics(x, row, c.dim);
    for (int64_t i = 0; i < c.dim; ++i)
      y.push_back((x[row * c.dim + i] - s.mean) * s.rstd * affine.w(i) + affine.b(i));
  }
  return y;
}

// One rounding to the type, and float32 sums. A single column has no deviation but rounding's.
double tolerance_of(const Case& c) {
  return 1.01 * unit_roundoff(c.type) + 0x1p-22 * (8 + std::sqrt(static_cast<double>(c.dim)));
}

TEST(LayerNorm, ForwardIsTheFormula) {
  on_every_isa([] {
    for (const Case& c : cases()) {
      const Array x = input_of(c);
      const Affine affine(c, c.type);
      Array y(c.type, c.rows * c.dim, c.shift);
      Array mean(Scalar::F32, c.rows, c.shift), rstd(Scalar::F32, c.rows, c.shift);
      layer_norm_forward({.type = c.type,
                          .weight_type = c.type,
                          .rows = c.rows,
                          .dim = c.dim,
                          .x = x.data(),
                          .weight = affine.weight_data(),
                          .bias = affine.bias_data(),
                          .eps = kEps,
                          .y = y.data(),
                          .mean = mean.floats(),
                          .rstd = rstd.floats()});
      const std::vector<double> values = x.values();
      const std::vector<double> expected = reference(values, affine, c);
      expect_near(y.values(), expected, within(expected, tolerance_of(c), 4e-6), describe(c));
      for (int64_t row = 0; row < c.rows; ++row) {
        const Row s = statistics(values, row, c.dim);
        EXPECT_NEAR(mean[row], s.mean, 2e-6 * (1 + std::abs(s.mean))) << describe(c);
        EXPECT_NEAR(rstd[row] / s.rstd, 1, 4e-6) << describe(c);
      }
      EXPECT_TRUE(y.guards_intact() && mean.guards_intact() && rstd.guards_intact());
    }
  });
}

TEST(LayerNorm, ResidualIsAddedWithOneRoundingAndNormed) {
  on_every_isa([] {
    for (const Case& c : cases()) {
      const Array x = input_of(c);
      const Affine affine(c, Scalar::F32);
      Array sum = random_array(c.type, c.rows * c.dim, 4, 1.0, c.shift);
      std::vector<double> h;
      for (int64_t i = 0; i < x.size(); ++i) h.push_back(rounded(x[i] + sum[i], c.type));
      Array y(c.type, c.rows * c.dim, c.shift);
      layer_norm_forward({.type = c.type,
                          .weight_type = Scalar::F32,
                          .rows = c.rows,
                          .dim = c.dim,
                          .x = x.data(),
                          .residual = sum.data(),
                          .sum = sum.data(),
                          .weight = affine.weight_data(),
                          .bias = affine.bias_data(),
                          .eps = kEps,
                          .y = y.data()});
      EXPECT_EQ(sum.values(), h) << describe(c);
      const std::vector<double> expected = reference(h, affine, c);
      expect_near(y.values(), expected, within(expected, tolerance_of(c), 4e-6), describe(c));
      EXPECT_TRUE(y.guards_intact() && sum.guards_intact()) << describe(c);
    }
  });
}

TEST(LayerNorm, ALargeMeanDoesNotDrownTheDeviations) {
  const Case c = {Scalar::F32, 2, 256, 0};
  std::vector<double> values = random_values(c.rows * c.dim, 1);
  for (double& v : values) v += 1000;
  const Array x(Scalar::F32, values);
  Array y(Scalar::F32, x.size());
  layer_norm_forward({.rows = c.rows, .dim = c.dim, .x = x.data(), .eps = kEps, .y = y.data()});
  const std::vector<double> expected =
      reference(x.values(), Affine({c.type, c.rows, c.dim, 0, false}, c.type), c);
  // Half an ulp of 1000 is 3e-5.
  expect_near(y.values(), expected, within(expected, 1e-5, 1e-4), "rows around 1000");
}

struct Gradients {
  std::vector<double> dx, dweight, dbias;
};

// Written out by the chain rule, row by row.
Gradients reference_gradients(const Array& dy, const Array& x, const Affine& affine,
                              const Case& c) {
  const auto n = static_cast<double>(c.dim);
  const auto columns = static_cast<size_t>(c.dim);
  Gradients g{{}, std::vector<double>(columns), std::vector<double>(columns)};
  const std::vector<double> values = x.values();
  for (int64_t row = 0; row < c.rows; ++row) {
    const Row s = statistics(values, row, c.dim);
    const int64_t at = row * c.dim;
    const auto normed = [&](int64_t i) { return (x[at + i] - s.mean) * s.rstd; };
    double mean_g = 0, mean_gn = 0;
    for (int64_t i = 0; i < c.dim; ++i) {
      mean_g += dy[at + i] * affine.w(i) / n;
      mean_gn += dy[at + i] * affine.w(i) * normed(i) / n;
      g.dweight[i] += dy[at + i] * normed(i);
      g.dbias[i] += dy[at + i];
    }
    for (int64_t i = 0; i < c.dim; ++i)
      g.dx.push_back(s.rstd * (dy[at + i] * affine.w(i) - mean_g - normed(i) * mean_gn));
  }
  return g;
}

TEST(LayerNorm, ReferenceGradientsAreFiniteDifferences) {
  const Case c = {Scalar::F32, 2, 5, 0};
  const Array x = input_of(c), dy = random_array(Scalar::F32, 10, 5);
  const Affine affine(c, Scalar::F32);
  const auto loss = [&](const std::vector<double>& at) {
    const std::vector<double> y = reference(at, affine, c);
    double sum = 0;
    for (int64_t i = 0; i < 10; ++i) sum += y[i] * dy[i];
    return sum;
  };
  const Gradients g = reference_gradients(dy, x, affine, c);
  for (int64_t i = 0; i < 10; ++i) {
    std::vector<double> up = x.values(), down = x.values();
    up[i] += 1e-6;
    down[i] -= 1e-6;
    EXPECT_NEAR(g.dx[i], (loss(up) - loss(down)) / 2e-6, 1e-7);
  }
}

TEST(LayerNorm, BackwardIsTheChainRule) {
  on_every_isa([] {
    for (const Case& c : cases()) {
      if (c.dim == 1) continue;  // there rstd is 1 / sqrt(eps), and every gradient a cancellation
      const Array x = input_of(c);
      const Array dy = random_array(c.type, c.rows * c.dim, 5, 1.0, c.shift);
      const Affine affine(c, c.type);
      Array mean(Scalar::F32, c.rows, c.shift), rstd(Scalar::F32, c.rows, c.shift);
      const std::vector<double> values = x.values();
      for (int64_t row = 0; row < c.rows; ++row) {
        mean.set(row, statistics(values, row, c.dim).mean);
        rstd.set(row, statistics(values, row, c.dim).rstd);
      }
      Array dx = random_array(c.type, c.rows * c.dim, 6, 1.0, c.shift);  // also d_residual
      Array dweight(Scalar::F32, c.dim, c.shift), dbias(Scalar::F32, c.dim, c.shift);
      Gradients g = reference_gradients(dy, x, affine, c);
      for (int64_t i = 0; i < dx.size(); ++i) g.dx[i] += dx[i];
      layer_norm_backward({.type = c.type,
                           .weight_type = c.type,
                           .rows = c.rows,
                           .dim = c.dim,
                           .dy = dy.data(),
                           .x = x.data(),
                           .weight = affine.weight_data(),
                           .mean = mean.floats(),
                           .rstd = rstd.floats(),
                           .d_residual = dx.data(),
                           .dx = dx.data(),
                           .dweight = {.data = dweight.floats()},
                           .dbias = {.data = dbias.floats()}});
      // Where terms cancel the error is that of the terms, which are of the size of 1 to 10.
      expect_near(dx.values(), g.dx, within(g.dx, 1.01 * unit_roundoff(c.type), 2e-5),
                  describe(c) + " dx");
      const double sums = 4e-6 * std::sqrt(static_cast<double>(c.rows)) + 1e-6;
      expect_near(dweight.values(), g.dweight, within(g.dweight, 1e-6, sums),
                  describe(c) + " dweight");
      expect_near(dbias.values(), g.dbias, within(g.dbias, 1e-6, sums), describe(c) + " dbias");
      EXPECT_TRUE(dx.guards_intact() && dweight.guards_intact() && dbias.guards_intact());
    }
  });
}

TEST(LayerNorm, ThreadsDoNotChangeABit) {
  const int64_t rows = 1500, dim = 100;
  on_every_isa([&] {
    const Array x = random_array(Scalar::BF16, rows * dim, 1);
    const Array weight = random_array(Scalar::BF16, dim, 2);
    std::vector<Array> inputs, weights, biases;
    for (const int threads : {1, 2, 3}) {
      Array y(Scalar::BF16, rows * dim), dx(Scalar::BF16, rows * dim);
      Array mean(Scalar::F32, rows), rstd(Scalar::F32, rows);
      Array dweight(Scalar::F32, dim), dbias(Scalar::F32, dim);
      layer_norm_forward({.type = Scalar::BF16,
                          .weight_type = Scalar::BF16,
                          .rows = rows,
                          .dim = dim,
                          .x = x.data(),
                          .weight = weight.data(),
                          .y = y.data(),
                          .mean = mean.floats(),
                          .rstd = rstd.floats(),
                          .num_threads = threads});
      layer_norm_backward({.type = Scalar::BF16,
                           .weight_type = Scalar::BF16,
                           .rows = rows,
                           .dim = dim,
                           .dy = y.data(),
                           .x = x.data(),
                           .weight = weight.data(),
                           .mean = mean.floats(),
                           .rstd = rstd.floats(),
                           .dx = dx.data(),
                           .dweight = {.data = dweight.floats()},
                           .dbias = {.data = dbias.floats()},
                           .num_threads = threads});
      inputs.push_back(dx);
      weights.push_back(dweight);
      biases.push_back(dbias);
    }
    EXPECT_TRUE(inputs[0] == inputs[1] && inputs[0] == inputs[2]);
    EXPECT_TRUE(weights[0] == weights[1] && weights[0] == weights[2]);
    EXPECT_TRUE(biases[0] == biases[1] && biases[0] == biases[2]);
  });
}

TEST(LayerNorm, NotANumberStaysInItsRow) {
  on_every_isa([] {
    Array x = random_array(Scalar::BF16, 3 * 20, 1);
    x.set(25, NAN);
    Array y(Scalar::BF16, 60);
    layer_norm_forward({.type = Scalar::BF16, .rows = 3, .dim = 20, .x = x.data(), .y = y.data()});
    for (int64_t i = 0; i < 60; ++i) EXPECT_EQ(std::isnan(y[i]), i / 20 == 1) << i;
  });
}

}  // namespace layer_norm_test
}  // namespace snug::kernels::cpu
