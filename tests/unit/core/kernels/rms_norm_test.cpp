// RMSNorm against sums in double, and its gradients against finite differences.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/rms_norm.h"

#include "unit/core/kernels/arrays.h"

namespace snug::kernels::cpu {
namespace rms_norm_test {

constexpr float kEps = 1e-5f;

struct Case {
  Scalar type;
  NormForm form;
  int64_t rows, dim;
  int shift;
  bool weighted = true;
};

std::string describe(const Case& c) {
  return std::string(name_of(c.type)) + " rows " + std::to_string(c.rows) + " dim " +
         std::to_string(c.dim) + " shift " + std::to_string(c.shift);
}

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const Scalar type : kAllTypes) {
    for (const int64_t dim : {1, 7, 100, 576, 2048}) {
      for (const int64_t rows : {0, 1, 3, 100}) {
        if (rows * dim > 100 * 576) continue;
        result.push_back({type, NormForm::Llama, rows, dim, static_cast<int>(rows + dim) % 2});
      }
    }
    result.push_back({type, NormForm::Gemma, 5, 77, 1});
    result.push_back({type, NormForm::Gemma4, 5, 77, 1});
    result.push_back({type, NormForm::Gemma4, 5, 77, 0, false});
  }
  result.push_back({Scalar::F32, NormForm::Llama, 1024, 24, 0});
  return result;
}

double scale_of(double weight, NormForm form) {
  return form == NormForm::Gemma ? 1 + weight : weight;
}

// Ones where the norm is given none.
Array weight_of(const Case& c, Scalar type, int shift) {
  Array weight = random_array(type, c.dim, 2, 1.0, shift);
  for (int64_t i = 0; i < c.dim && !c.weighted; ++i) weight.set(i, 1);
  return weight;
}

double rstd_of(const std::vector<double>& x, int64_t row, int64_t dim) {
  double squares = 0;
  for (int64_t i = 0; i < dim; ++i) squares += x[row * dim + i] * x[row * dim + i];
  return 1 / std::sqrt(squares / static_cast<double>(dim) + kEps);
}

std::vector<double> reference(const std::vector<double>& x, const Array& weight, const Case& c) {
  std::vector<double> y;
  for (int64_t row = 0; row < c.rows; ++row) {
    const double rstd = rstd_of(x, row, c.dim);
    for (int64_t i = 0; i < c.dim; ++i) {
      y.push_back(x[row * c.dim + i] * rstd * scale_of(weight[i], c.form));
    }
  }
  return y;
}

// Two roundings to the type, and float32 sums.
double tolerance_of(const Case& c) {
  return 2.5 * unit_roundoff(c.type) + 0x1p-24 * (8 + std::sqrt(static_cast<double>(c.dim)));
}

TEST(RmsNorm, ForwardIsTheFormula) {
  on_every_isa([] {
    for (const Case& c : cases()) {
      const Array x = random_array(c.type, c.rows * c.dim, 1, 2.0, c.shift);
      const Array weight = weight_of(c, c.type, c.shift);
      Array y(c.type, c.rows * c.dim, c.shift);
      Array rstd(Scalar::F32, c.rows, c.shift);
      rms_norm_forward({.type = c.type,
                        .weight_type = c.type,
                        .form = c.form,
                        .rows = c.rows,
                        .dim = c.dim,
                        .x = x.data(),
                        .weight = c.weighted ? weight.data() : nullptr,
                        .eps = kEps,
                        .y = y.data(),
                        .rstd = rstd.floats()});
      const std::vector<double> values = x.values();
      const std::vector<double> expected = reference(values, weight, c);
      expect_near(y.values(), expected, within(expected, tolerance_of(c), 1e-7), describe(c));
      for (int64_t row = 0; row < c.rows; ++row) {
        EXPECT_NEAR(rstd[row] / rstd_of(values, row, c.dim), 1, 4e-6) << describe(c);
      }
      EXPECT_TRUE(y.guards_intact() && rstd.guards_intact()) << describe(c);
    }
  });
}

TEST(RmsNorm, ResidualIsAddedWithOneRoundingAndNormed) {
  on_every_isa([] {
    for (const Case& c : cases()) {
      const Array x = random_array(c.type, c.rows * c.dim, 1, 2.0, c.shift);
      const Array weight = weight_of(c, Scalar::F32, 0);
      Array sum = random_array(c.type, c.rows * c.dim, 3, 1.0, c.shift);
      std::vector<double> h;
      for (int64_t i = 0; i < x.size(); ++i) h.push_back(rounded(x[i] + sum[i], c.type));
      Array y(c.type, c.rows * c.dim, c.shift);
      rms_norm_forward({.type = c.type,
                        .weight_type = Scalar::F32,
                        .form = c.form,
                        .rows = c.rows,
                        .dim = c.dim,
                        .x = x.data(),
                        .residual = sum.data(),
                        .sum = sum.data(),
                        .weight = c.weighted ? weight.data() : nullptr,
                        .eps = kEps,
                        .y = y.data()});
      EXPECT_EQ(sum.values(), h) << describe(c);
      const std::vector<double> expected = reference(h, weight, c);
      expect_near(y.values(), expected, within(expected, tolerance_of(c), 1e-7), describe(c));
      EXPECT_TRUE(y.guards_intact() && sum.guards_intact()) << describe(c);
    }
  });
}

struct Gradients {
  std::vector<double> dx, dweight;
};

// Written out by the chain rule, row by row, for the unrounded forward.
Gradients reference_gradients(const Array& dy, const Array& x, const Array& weight, const Case& c) {
  Gradients g{{}, std::vector<double>(static_cast<size_t>(c.dim))};
  const std::vector<double> values = x.values();
  for (int64_t row = 0; row < c.rows; ++row) {
    const double rstd = rstd_of(values, row, c.dim);
    const int64_t at = row * c.dim;
    double dot = 0;
    for (int64_t i = 0; i < c.dim; ++i) {
      dot += dy[at + i] * scale_of(weight[i], c.form) * x[at + i];
      g.dweight[i] += dy[at + i] * x[at + i] * rstd;
    }
    for (int64_t i = 0; i < c.dim; ++i) {
      g.dx.push_back(rstd * dy[at + i] * scale_of(weight[i], c.form) -
                     rstd * rstd * rstd * x[at + i] * dot / static_cast<double>(c.dim));
    }
  }
  return g;
}

TEST(RmsNorm, ReferenceGradientsAreFiniteDifferences) {
  const Case c = {Scalar::F32, NormForm::Gemma, 2, 5, 0};
  const Array x = random_array(Scalar::F32, 10, 1), weight = random_array(Scalar::F32, 5, 2);
  const Array dy = random_array(Scalar::F32, 10, 3);
  const auto loss = [&](const std::vector<double>& at) {
    const std::vector<double> y = reference(at, weight, c);
    double sum = 0;
    for (int64_t i = 0; i < 10; ++i) sum += y[i] * dy[i];
    return sum;
  };
  const Gradients g = reference_gradients(dy, x, weight, c);
  for (int64_t i = 0; i < 10; ++i) {
    std::vector<double> up = x.values(), down = x.values();
    up[i] += 1e-6;
    down[i] -= 1e-6;
    EXPECT_NEAR(g.dx[i], (loss(up) - loss(down)) / 2e-6, 1e-7);
  }
}

TEST(RmsNorm, BackwardIsTheChainRule) {
  on_every_isa([] {
    for (const Case& c : cases()) {
      const Array x = random_array(c.type, c.rows * c.dim, 1, 2.0, c.shift);
      const Array dy = random_array(c.type, c.rows * c.dim, 4, 1.0, c.shift);
      const Array weight = weight_of(c, c.type, c.shift);
      Array rstd(Scalar::F32, c.rows, c.shift);
      const std::vector<double> values = x.values();
      for (int64_t row = 0; row < c.rows; ++row) rstd.set(row, rstd_of(values, row, c.dim));
      Array dx = random_array(c.type, c.rows * c.dim, 5, 1.0, c.shift);  // also d_residual
      Array dweight = random_array(Scalar::F32, c.dim, 6, 1.0, c.shift);
      Gradients g = reference_gradients(dy, x, weight, c);
      for (int64_t i = 0; i < dx.size(); ++i) g.dx[i] += dx[i];
      for (int64_t i = 0; i < c.dim; ++i) g.dweight[i] += dweight[i];
      rms_norm_backward({.type = c.type,
                         .weight_type = c.type,
                         .form = c.form,
                         .rows = c.rows,
                         .dim = c.dim,
                         .dy = dy.data(),
                         .x = x.data(),
                         .weight = c.weighted ? weight.data() : nullptr,
                         .rstd = rstd.floats(),
                         .d_residual = dx.data(),
                         .dx = dx.data(),
                         .dweight = {.data = dweight.floats(), .accumulate = true}});
      // Where terms cancel the error is that of the terms, which are of the size of 1 to 10.
      expect_near(dx.values(), g.dx, within(g.dx, 1.01 * unit_roundoff(c.type), 2e-5),
                  describe(c) + " dx");
      const double per_row = 6 * (c.form == NormForm::Llama ? unit_roundoff(c.type) : 0) + 2e-6;
      const double sums = per_row * std::sqrt(static_cast<double>(c.rows)) + 1e-6;
      expect_near(dweight.values(), g.dweight, within(g.dweight, 1e-6, 2 * sums),
                  describe(c) + " dweight");
      EXPECT_TRUE(dx.guards_intact() && dweight.guards_intact()) << describe(c);
    }
  });
}

TEST(RmsNorm, ThreadsDoNotChangeABit) {
  const int64_t rows = 1500, dim = 100;
  on_every_isa([&] {
    const Array x = random_array(Scalar::BF16, rows * dim, 1);
    const Array weight = random_array(Scalar::BF16, dim, 2);
    std::vector<Array> outputs, gradients;
    for (const int threads : {1, 2, 3}) {
      Array y(Scalar::BF16, rows * dim), rstd(Scalar::F32, rows), dweight(Scalar::F32, dim);
      rms_norm_forward({.type = Scalar::BF16,
                        .weight_type = Scalar::BF16,
                        .rows = rows,
                        .dim = dim,
                        .x = x.data(),
                        .weight = weight.data(),
                        .y = y.data(),
                        .rstd = rstd.floats(),
                        .num_threads = threads});
      Array dx(Scalar::BF16, rows * dim);
      rms_norm_backward({.type = Scalar::BF16,
                         .weight_type = Scalar::BF16,
                         .rows = rows,
                         .dim = dim,
                         .dy = y.data(),
                         .x = x.data(),
                         .weight = weight.data(),
                         .rstd = rstd.floats(),
                         .dx = dx.data(),
                         .dweight = {.data = dweight.floats()},
                         .num_threads = threads});
      outputs.push_back(dx);
      gradients.push_back(dweight);
    }
    EXPECT_TRUE(outputs[0] == outputs[1] && outputs[0] == outputs[2]);
    EXPECT_TRUE(gradients[0] == gradients[1] && gradients[0] == gradients[2]);
  });
}

TEST(RmsNorm, NotANumberStaysInItsRow) {
  on_every_isa([] {
    Array x = random_array(Scalar::BF16, 3 * 20, 1);
    x.set(25, NAN);
    const Array weight = random_array(Scalar::BF16, 20, 2);
    Array y(Scalar::BF16, 60);
    rms_norm_forward({.type = Scalar::BF16,
                      .weight_type = Scalar::BF16,
                      .rows = 3,
                      .dim = 20,
                      .x = x.data(),
                      .weight = weight.data(),
                      .y = y.data()});
    for (int64_t i = 0; i < 60; ++i) EXPECT_EQ(std::isnan(y[i]), i / 20 == 1) << i;
  });
}

}  // namespace rms_norm_test
}  // namespace snug::kernels::cpu
