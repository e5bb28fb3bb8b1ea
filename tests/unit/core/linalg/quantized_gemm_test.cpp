// Products with a quantized weight against sums in double of the weight's numbers, over random
// shapes, types and formats; bit-equal to a product with those numbers stored where both are packed
// alike, and from one number of threads to another. Every operand ends at a forbidden page.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/kernels/cpu/linalg/gemm.h"
#include "core/kernels/quantized_matrix.h"
#include "testing.h"

namespace snug::kernels::cpu {
namespace quantized_gemm_test {

struct Case {
  QuantizedFormat format;
  int64_t tokens, rows, cols;  // of x or d_out, and of the weight
  bool transposed;             // x · Wᵀ, else d_out · W
  Scalar a_type, b_type, c_type;
  bool accumulate;
  float alpha;
  int threads;

  int64_t n() const { return transposed ? rows : cols; }
  int64_t k() const { return transposed ? cols : rows; }
  std::string text() const {
    return fmt::format("{} {} tokens, weight {}x{}{}, {} {} {}, accumulate={} alpha={} threads={}",
                       traits(format).name, tokens, rows, cols, transposed ? "^T" : "",
                       scalar_name(a_type), scalar_name(b_type), scalar_name(c_type), accumulate,
                       alpha, threads);
  }
};

struct Problem {
  Problem(const Case& c, unsigned seed)
      : which(c),
        blob(quantized_bytes(c.format, c.rows, c.cols)),
        numbers(c.rows * c.cols * scalar_bytes(c.b_type)),
        a(c.tokens * c.k() * scalar_bytes(c.a_type)),
        out(c.tokens * c.n() * scalar_bytes(c.c_type)) {
    std::mt19937 random(seed);
    fill_blob(random);
    weight = quantized_matrix(c.format, c.rows, c.cols, blob.data());
    portable_kernels().dequantize(
        {.weight = &weight, .count = c.rows * c.cols, .out = numbers.data(), .type = c.b_type});
    fill(a.data(), c.a_type, c.tokens * c.k(), random);
    fill(out.data(), c.c_type, c.tokens * c.n(), random);
    before.assign(out.data(), out.data() + c.tokens * c.n() * scalar_bytes(c.c_type));
    args = {.m = c.tokens, .n = c.n(), .k = c.k()};
    args.a = {a.data(), c.a_type, c.k(), 1};
    args.b = {nullptr, c.b_type, c.transposed ? 1 : c.cols, c.transposed ? c.cols : 1};
    args.quantized_b = &weight;
    args.c = out.data();
    args.c_type = c.c_type;
    args.c_row_stride = c.n();
    args.alpha = c.alpha;
    args.accumulate = c.accumulate;
    args.num_threads = c.threads;
  }

  // Any codes, and scales of a usual size.
  void fill_blob(std::mt19937& random) {
    const QuantizedLayout layout = quantized_layout(which.format, which.rows, which.cols);
    for (int64_t i = 0; i < layout.bytes; ++i) blob.data()[i] = char(random());
    const auto floats = [&](int64_t at, int64_t count) {
      auto* to = reinterpret_cast<float*>(blob.data() + at);
      for (int64_t i = 0; i < count; ++i) to[i] = 0.5f + float(random() % 1000) / 1000.f;
    };
    if (traits(which.format).nested) {
      floats(layout.nested_scales, layout.num_nested_scales);
      floats(layout.mean, 1);
    } else {
      floats(layout.scales, layout.num_scales);
    }
  }

  std::string run() {
    std::copy(before.begin(), before.end(), out.data());
    GuardedBuffer workspace(gemm_workspace_bytes(args), 64);
    gemm(args, workspace.data());
    return std::string(out.data(), before.size());
  }

  std::string run_stored() {
    GemmArgs stored = args;
    stored.quantized_b = nullptr;
    stored.b.data = numbers.data();
    std::copy(before.begin(), before.end(), out.data());
    GuardedBuffer workspace(gemm_workspace_bytes(stored), 64);
    gemm(stored, workspace.data());
    return std::string(out.data(), before.size());
  }

  // As for products of stored operands: see gemm_test.cpp.
  void expect_right() const {
    double worst = 0;
    std::string where = "none";
    const int64_t n = which.n(), k = which.k();
    for (int64_t i = 0; i < which.tokens; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, a2 = 0, b2 = 0;
        for (int64_t p = 0; p < k; ++p) {
          const double x = read_number(a.data(), which.a_type, i * k + p);
          const double y =
              read_number(numbers.data(), which.b_type, which.transposed ? j * k + p : p * n + j);
          sum += x * y, a2 += x * x, b2 += y * y;
        }
        const double added =
            which.accumulate ? read_number(before.data(), which.c_type, i * n + j) : 0.0;
        const double want = which.alpha * sum + added;
        const double got = read_number(out.data(), which.c_type, i * n + j);
        const double float_error =
            0x1p-24 * ((std::sqrt(double(k)) + 4) * std::abs(which.alpha) * std::sqrt(a2 * b2) +
                       4 * std::abs(added));
        const double tolerance =
            float_error + unit_roundoff(which.c_type) * (std::abs(want) + float_error) + 0x1p-25;
        if (!(std::abs(got - want) / tolerance <= worst)) {
          worst = std::abs(got - want) / tolerance;
          where = fmt::format("({}, {}): {} instead of {}", i, j, got, want);
        }
      }
    }
    EXPECT_LE(worst, 1.0) << which.text() << "\nworst at " << where;
  }

  Case which;
  GuardedBuffer blob, numbers, a, out;
  std::vector<char> before;
  QuantizedMatrix weight;
  GemmArgs args;
};

Case random_case(std::mt19937& random) {
  auto pick = [&](auto... options) {
    const int64_t list[] = {int64_t(options)...};
    return list[random() % std::size(list)];
  };
  Case c{};
  c.format = QuantizedFormat(random() % 5);
  c.tokens = pick(1, 2, 3, 5, 8, 9, 1 + random() % 70);
  c.rows = pick(1, 1 + random() % 40, 1 + random() % 150, 64, 96, 300 + random() % 400);
  c.cols = pick(1, 1 + random() % 40, 1 + random() % 150, 64, 128, 192, 300 + random() % 400, 576);
  c.transposed = random() % 2;
  for (Scalar* type : {&c.a_type, &c.b_type, &c.c_type}) *type = Scalar(random() % 3);
  if (random() % 2) c.a_type = c.b_type = Scalar::BF16;
  c.accumulate = random() % 3 == 0;
  c.alpha = random() % 3 ? 1.f : 0.37f;
  c.threads = int(pick(1, 1, 2, 3));
  return c;
}

class QuantizedGemmOn : public testing::TestWithParam<NamedKernels> {};

TEST_P(QuantizedGemmOn, RandomProductsMatchDouble) {
  ScopedKernels scope(*GetParam().kernels);
  std::mt19937 random(20261121);
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    Problem problem(random_case(random), unsigned(i));
    problem.run();
    problem.expect_right();
  }
}

// More tokens than take the way of few rows.
TEST_P(QuantizedGemmOn, SameBitsAsTheNumbersStored) {
  ScopedKernels scope(*GetParam().kernels);
  std::mt19937 random(7);
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    Case c = random_case(random);
    c.tokens += 9;
    Problem problem(c, unsigned(i));
    EXPECT_TRUE(problem.run() == problem.run_stored()) << c.text();
  }
}

// Several steps in every direction, and two-byte results summed over them.
TEST_P(QuantizedGemmOn, LargerThanEveryBlock) {
  ScopedKernels scope(*GetParam().kernels);
  for (const Scalar type : {Scalar::F32, Scalar::BF16}) {
    for (const bool transposed : {true, false}) {
      for (const QuantizedFormat format :
           {QuantizedFormat::Nf4DoubleQuant, QuantizedFormat::Int8}) {
        Problem problem({format, 20, 1300, 1216, transposed, type, type, type, true, 1.f, 2}, 3);
        EXPECT_TRUE(problem.run() == problem.run_stored()) << problem.which.text();
        problem.expect_right();
      }
    }
  }
}

TEST_P(QuantizedGemmOn, SameBitsForAnyNumberOfThreads) {
  ScopedKernels scope(*GetParam().kernels);
  for (const int64_t tokens : {1, 2, 7, 33}) {
    for (const bool transposed : {true, false}) {
      std::string first;
      for (const int threads : {1, 2, 2, 5}) {
        Problem problem({QuantizedFormat::Nf4, tokens, 700, 640, transposed, Scalar::BF16,
                         Scalar::BF16, Scalar::F32, false, 1.f, threads},
                        11);
        const std::string bits = problem.run();
        if (first.empty()) first = bits;
        EXPECT_TRUE(bits == first) << problem.which.text();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, QuantizedGemmOn, testing::ValuesIn(runnable_kernels()),
                         [](const auto& info) { return info.param.name; });

}  // namespace quantized_gemm_test
}  // namespace snug::kernels::cpu
