// Adafactor in every combination of types against double, and on any threads. Comparison with
// torch: tests/unit/core/optim/oracle_test.cpp.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/optimizers.h"

#include <algorithm>

#include "unit/core/kernels/arrays.h"

namespace snug::kernels::cpu {
namespace {

struct Arrays {
  Arrays(Scalar param_type, Scalar grad_type, int64_t rows, int64_t cols, bool with_master)
      : rows(rows),
        cols(cols),
        param(random_array(param_type, rows * cols, 1, 1.0, 1)),
        grad(random_array(grad_type, rows * cols, 2, 0.1, 1)),
        master(random_array(Scalar::F32, with_master ? rows * cols : 0, 5)),
        row_var(static_cast<size_t>(rows), 0.01f),
        col_var(static_cast<size_t>(cols), 0.02f) {}

  void step(const AdafactorOptions& options, bool vector = false) {
    std::vector<char> workspace(static_cast<size_t>(adafactor_workspace_bytes(rows, cols)));
    adafactor_step({.count = rows * cols,
                    .rows = rows,
                    .cols = cols,
                    .param = param.data(),
                    .grad = grad.data(),
                    .row_var = vector ? nullptr : row_var.data(),
                    .col_var = col_var.data(),
                    .master = master.size() > 0 ? master.floats() : nullptr,
                    .param_type = param.type(),
                    .grad_type = grad.type()},
                   options, workspace.data());
  }
  double weight(int64_t i) const { return master.size() > 0 ? master[i] : param[i]; }

  int64_t rows, cols;
  Array param, grad, master;
  std::vector<float> row_var, col_var;
};

const AdafactorOptions kOptions = {.lr = 0.3, .weight_decay = 0.1, .step = 3, .grad_scale = 0.5f};

// The formulas of adafactor.h, whole matrices at a time.
struct Reference {
  explicit Reference(const Arrays& a, const AdafactorOptions& o, bool vector)
      : row(a.row_var.begin(), a.row_var.end()), col(a.col_var.begin(), a.col_var.end()) {
    const auto count = static_cast<double>(a.rows * a.cols);
    const double share = std::pow(static_cast<double>(o.step), o.beta2_decay);
    std::vector<double> row_mean(row.size()), col_mean(col.size());
    double squares = 0;
    for (int64_t i = 0; i < a.rows * a.cols; ++i) {
      const double g = a.grad[i] * o.grad_scale;
      row_mean[i / a.cols] += g * g / static_cast<double>(a.cols);
      col_mean[i % a.cols] += g * g / static_cast<double>(a.rows);
      squares += a.weight(i) * a.weight(i);
    }
    double mean = 0;
    for (size_t r = 0; r < row.size(); ++r) {
      row[r] += (row_mean[r] - row[r]) * share;
      mean += row[r] / static_cast<double>(row.size());
    }
    for (size_t c = 0; c < col.size(); ++c) col[c] += (col_mean[c] - col[c]) * share;
    std::vector<double> update;
    double update_squares = 0;
    for (int64_t i = 0; i < a.rows * a.cols; ++i) {
      const double factor = vector ? 1 : row[i / a.cols] / std::max(mean, o.eps1);
      const double moment = std::max(factor * col[i % a.cols], o.eps1 * o.eps1);
      update.push_back(a.grad[i] * o.grad_scale / std::sqrt(moment));
      update_squares += update.back() * update.back();
    }
    const double alpha = std::max(o.eps2, std::sqrt(squares / count)) *
                         std::min(o.lr, 1 / std::sqrt(static_cast<double>(o.step))) /
                         std::max(1.0, std::sqrt(update_squares / count) / o.d);
    for (int64_t i = 0; i < a.rows * a.cols; ++i)
      weights.push_back(a.weight(i) * (1 - o.lr * o.weight_decay) - alpha * update[i]);
  }
  std::vector<double> row, col, weights;
};

TEST(Adafactor, EveryCombinationOfTypesAndShapes) {
  on_every_isa([] {
    for (const Scalar param : kAllTypes) {
      for (const Scalar grad : kAllTypes) {
        for (const bool master : {false, true}) {
          for (const auto& [rows, cols] :
               {std::pair<int64_t, int64_t>{13, 71}, {1, 40}, {300, 3}}) {
            const bool vector = rows == 1;
            Arrays a(param, grad, rows, cols, master);
            const Reference expected(a, kOptions, vector);
            a.step(kOptions, vector);
            std::vector<double> got;
            for (int64_t i = 0; i < rows * cols; ++i) got.push_back(a.weight(i));
            const std::string what =
                std::string(name_of(param)) + " " + name_of(grad) + (master ? " with master" : "");
            const double kept = master ? 0x1p-24 : unit_roundoff(param);
            expect_near(got, expected.weights, within(expected.weights, 1.01 * kept, 1e-6), what);
            expect_near({a.col_var.begin(), a.col_var.end()}, expected.col,
                        within(expected.col, 1e-6, 0), what);
            if (!vector)
              expect_near({a.row_var.begin(), a.row_var.end()}, expected.row,
                          within(expected.row, 1e-6, 0), what);
            EXPECT_TRUE(a.param.guards_intact() && a.master.guards_intact()) << what;
          }
        }
      }
    }
  });
}

TEST(Adafactor, ThreadsDoNotChangeABit) {
  on_every_isa([] {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{700, 300}, {3, 70000}}) {
      std::vector<Arrays> results;
      for (const int threads : {1, 2, 3}) {
        AdafactorOptions options = kOptions;
        options.num_threads = threads;
        options.stochastic_rounding = true;
        results.emplace_back(Scalar::BF16, Scalar::BF16, rows, cols, false);
        results.back().step(options);
      }
      for (const int other : {1, 2}) {
        EXPECT_TRUE(results[0].param == results[other].param);
        EXPECT_EQ(results[0].row_var, results[other].row_var);
        EXPECT_EQ(results[0].col_var, results[other].col_var);
      }
    }
  });
}

}  // namespace
}  // namespace snug::kernels::cpu
