// gemm against a plain loop in double, over random shapes, types, strides and options. Every
// operand and the workspace end at a forbidden page, so that a read or write beyond them fails the
// test.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/linalg/gemm.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "testing.h"

namespace snug::kernels::cpu {
namespace {

struct Case {
  int64_t m, n, k;
  Scalar a_type, b_type, c_type;
  bool a_transposed, b_transposed, accumulate, bias;
  int64_t a_pad, b_pad, c_pad;
  float alpha;
  int threads;

  std::string text() const {
    return fmt::format(
        "m={} n={} k={} a={}{}+{} b={}{}+{} c={}+{} alpha={} accumulate={} bias={} threads={}", m,
        n, k, scalar_name(a_type), a_transposed ? "^T" : "", a_pad, scalar_name(b_type),
        b_transposed ? "^T" : "", b_pad, scalar_name(c_type), c_pad, alpha, accumulate, bias,
        threads);
  }
};

struct Problem {
  explicit Problem(const Case& c, unsigned seed)
      : which(c),
        a(view_bytes(c.m, c.k, c.a_transposed, c.a_pad, c.a_type)),
        b(view_bytes(c.k, c.n, c.b_transposed, c.b_pad, c.b_type)),
        c_out(view_bytes(c.m, c.n, false, c.c_pad, c.c_type)),
        bias(c.n * scalar_bytes(c.c_type)) {
    std::mt19937 random(seed);
    fill(a.data(), c.a_type, count(c.m, c.k, c.a_transposed, c.a_pad), random);
    fill(b.data(), c.b_type, count(c.k, c.n, c.b_transposed, c.b_pad), random);
    const int64_t c_count = count(c.m, c.n, false, c.c_pad);
    fill(c_out.data(), c.c_type, c_count, random);
    fill(bias.data(), c.c_type, c.n, random);
    before.assign(c_out.data(), c_out.data() + c_count * scalar_bytes(c.c_type));
    args = {.m = c.m, .n = c.n, .k = c.k};
    args.a = view(a, c.a_type, c.m, c.k, c.a_transposed, c.a_pad);
    args.b = view(b, c.b_type, c.k, c.n, c.b_transposed, c.b_pad);
    args.c = c_out.data();
    args.c_type = c.c_type;
    args.c_row_stride = c.n + c.c_pad;
    args.alpha = c.alpha;
    args.accumulate = c.accumulate;
    args.bias = c.bias ? bias.data() : nullptr;
    args.num_threads = c.threads;
  }

  static int64_t count(int64_t rows, int64_t cols, bool transposed, int64_t pad) {
    if (transposed) std::swap(rows, cols);
    return rows && cols ? (rows - 1) * (cols + pad) + cols : 0;
  }
  static int64_t view_bytes(int64_t rows, int64_t cols, bool transposed, int64_t pad, Scalar type) {
    return count(rows, cols, transposed, pad) * scalar_bytes(type);
  }
  static MatrixView view(const GuardedBuffer& buffer, Scalar type, int64_t rows, int64_t cols,
                         bool transposed, int64_t pad) {
    return {buffer.data(), type, transposed ? 1 : cols + pad, transposed ? rows + pad : 1};
  }

  void run() {
    GuardedBuffer workspace(gemm_workspace_bytes(args), 64);
    gemm(args, workspace.data());
  }

  // Rounding in a sum of k products grows like sqrt(k) around the product of the norms; the step
  // through memory between blocks of k and the result's own rounding are added.
  void expect_right() const {
    const Case& c = which;
    const std::vector<double> lines_a =
        numbers(args.a.data, args.a.type, c.m, args.a.row_stride, c.k, args.a.col_stride);
    const std::vector<double> lines_b =
        numbers(args.b.data, args.b.type, c.n, args.b.col_stride, c.k, args.b.row_stride);
    double worst = 0;
    std::string where = "none";
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.n; ++j) {
        double sum = 0, a2 = 0, b2 = 0;
        for (int64_t p = 0; p < c.k; ++p) {
          const double x = lines_a[size_t(i * c.k + p)], y = lines_b[size_t(j * c.k + p)];
          sum += x * y, a2 += x * x, b2 += y * y;
        }
        const int64_t place = i * args.c_row_stride + j;
        const double added = (c.accumulate ? read_number(before.data(), c.c_type, place) : 0.0) +
                             (c.bias ? read_number(bias.data(), c.c_type, j) : 0.0);
        const double want = c.alpha * sum + added;
        const double got = read_number(c_out.data(), c.c_type, place);
        const double float_error =
            0x1p-24 * ((std::sqrt(double(c.k)) + 4) * std::abs(c.alpha) * std::sqrt(a2 * b2) +
                       4 * std::abs(added));
        const double tolerance =
            float_error + unit_roundoff(c.c_type) * (std::abs(want) + float_error) + 0x1p-25;
        if (!(std::abs(got - want) / tolerance <= worst)) {
          worst = std::abs(got - want) / tolerance;
          where = fmt::format("({}, {}): {} instead of {}", i, j, got, want);
        }
      }
    }
    EXPECT_LE(worst, 1.0) << c.text() << "\nworst at " << where;
    expect_padding_untouched();
  }

  void expect_padding_untouched() const {
    const int64_t bytes = scalar_bytes(which.c_type);
    for (int64_t i = 0; i + 1 < which.m && which.n > 0; ++i) {
      const int64_t start = (i * args.c_row_stride + which.n) * bytes;
      ASSERT_EQ(
          0, std::memcmp(c_out.data() + start, before.data() + start, size_t(which.c_pad * bytes)))
          << which.text() << "\npadding after row " << i;
    }
  }

  static std::vector<double> numbers(const void* data, Scalar type, int64_t lines,
                                     int64_t line_stride, int64_t depth, int64_t depth_stride) {
    std::vector<double> values;
    for (int64_t i = 0; i < lines; ++i) {
      for (int64_t p = 0; p < depth; ++p) {
        values.push_back(read_number(data, type, i * line_stride + p * depth_stride));
      }
    }
    return values;
  }

  Case which;
  GuardedBuffer a, b, c_out, bias;
  std::vector<char> before;
  GemmArgs args;
};

Case random_case(std::mt19937& random) {
  auto pick = [&](auto... options) {
    const int64_t list[] = {int64_t(options)...};
    return list[random() % std::size(list)];
  };
  auto size = [&] {
    return pick(1, 2, 3, random() % 9, random() % 70, random() % 70, random() % 180);
  };
  Case c{};
  c.m = size(), c.n = size();
  c.k = pick(1, random() % 20, random() % 200, random() % 200, 385 + random() % 500);
  for (Scalar* type : {&c.a_type, &c.b_type, &c.c_type}) *type = Scalar(random() % 3);
  c.a_transposed = random() % 2, c.b_transposed = random() % 2;
  c.accumulate = random() % 3 == 0, c.bias = random() % 3 == 0;
  for (int64_t* pad : {&c.a_pad, &c.b_pad, &c.c_pad}) *pad = pick(0, 0, 1, 5, 8);
  c.alpha = random() % 3 ? 1.f : 0.37f;
  c.threads = int(pick(1, 1, 2, 3, 7));
  return c;
}

class GemmOn : public testing::TestWithParam<NamedKernels> {};

TEST_P(GemmOn, RandomProductsMatchDouble) {
  ScopedKernels scope(*GetParam().kernels);
  std::mt19937 random(20240607);
  for (int i = 0; i < 250 && !HasFailure(); ++i) {
    Problem problem(random_case(random), unsigned(i));
    problem.run();
    problem.expect_right();
  }
}

// Several blocks in every direction, and two-byte results summed over several steps of k.
TEST_P(GemmOn, LargerThanEveryBlock) {
  ScopedKernels scope(*GetParam().kernels);
  for (Scalar type : {Scalar::F32, Scalar::BF16}) {
    for (const auto& [m, n, k] :
         {std::array<int64_t, 3>{1600, 50, 400}, {250, 1300, 70}, {30, 20, 2000}}) {
      Problem problem({m, n, k, type, type, type, false, true, true, true, 0, 0, 3, 1.f, 2}, 7);
      problem.run();
      problem.expect_right();
    }
  }
}

TEST_P(GemmOn, SameBitsForAnyNumberOfThreads) {
  ScopedKernels scope(*GetParam().kernels);
  for (const auto& [m, n, k] :
       {std::array<int64_t, 3>{211, 333, 900}, {20, 1200, 400}, {3, 900, 77}}) {
    for (bool transposed : {false, true}) {
      std::string first;
      for (int threads : {1, 2, 2, 5}) {
        Problem problem({m, n, k, Scalar::BF16, Scalar::BF16, Scalar::F32, false, transposed, false,
                         false, 0, 0, 0, 1.f, threads},
                        11);
        problem.run();
        const std::string bits(problem.c_out.data(), problem.before.size());
        if (first.empty()) first = bits;
        EXPECT_TRUE(bits == first) << problem.which.text();
      }
    }
  }
}

TEST_P(GemmOn, NoDepthLeavesBiasAndOldValue) {
  ScopedKernels scope(*GetParam().kernels);
  for (bool accumulate : {false, true}) {
    Problem problem({5, 7, 0, Scalar::F32, Scalar::F32, Scalar::F32, false, false, accumulate, true,
                     0, 0, 0, 1.f, 1},
                    3);
    problem.run();
    problem.expect_right();
  }
}

TEST_P(GemmOn, NotANumberAndInfinityArrive) {
  ScopedKernels scope(*GetParam().kernels);
  for (Scalar type : {Scalar::F32, Scalar::BF16, Scalar::F16}) {
    for (int64_t m : {1, 20}) {
      Problem problem(
          {m, 40, 30, Scalar::F32, Scalar::F32, type, false, true, false, false, 0, 0, 0, 1.f, 1},
          3);
      auto* a = reinterpret_cast<float*>(problem.a.data());
      auto* b = reinterpret_cast<float*>(problem.b.data());
      a[0] = 1.f;
      b[30 * 17] = NAN;
      b[30 * 18] = INFINITY;
      problem.run();
      EXPECT_TRUE(std::isnan(read_number(problem.c_out.data(), type, 17)));
      EXPECT_EQ(INFINITY, read_number(problem.c_out.data(), type, 18));
      EXPECT_TRUE(std::isfinite(read_number(problem.c_out.data(), type, 19)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, GemmOn, testing::ValuesIn(runnable_kernels()),
                         [](const auto& info) { return info.param.name; });

TEST(Gemm, WorkspaceDoesNotGrowWithLargeSizes) {
  GemmArgs args{.m = 4096, .n = 4096, .k = 4096};
  args.c_type = Scalar::BF16;
  args.num_threads = 2;
  const int64_t bytes = gemm_workspace_bytes(args);
  args.m = args.n = args.k = 40960;
  EXPECT_LE(gemm_workspace_bytes(args), bytes + bytes / 4);
  EXPECT_LT(bytes, int64_t{16} << 20);
}

// Every half-precision number, there and back through the vector and the single-element paths.
TEST_P(GemmOn, EveryHalfSurvivesTheRoundTrip) {
  std::vector<uint16_t> halves(65536), back(65536);
  std::vector<float> wide(65536);
  for (int i = 0; i < 65536; ++i) halves[size_t(i)] = uint16_t(i);
  for (int64_t row : {int64_t{65536}, int64_t{1}}) {
    const Kernels& kernels = *GetParam().kernels;
    for (int64_t i = 0; i < 65536; i += row) {
      kernels.unpack(halves.data() + i, Scalar::F16, 1, row, wide.data() + i);
    }
    kernels.store({.source = wide.data(),
                   .source_stride = row,
                   .rows = 65536 / row,
                   .cols = row,
                   .c = back.data(),
                   .type = Scalar::F16,
                   .c_stride = row});
    for (size_t i = 0; i < 65536; ++i) {
      const double value = half_to_double(uint16_t(i));
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(wide[i]) && std::isnan(half_to_double(back[i]))) << i;
      } else {
        ASSERT_EQ(wide[i], value) << i;
        ASSERT_EQ(back[i], halves[i]) << i;
      }
    }
  }
}

// Rounding of numbers between two neighbours, ties included, against exact arithmetic in double.
TEST_P(GemmOn, StoresRoundToNearestEven) {
  std::mt19937 random(5);
  std::vector<float> values = {65519.9f,   65520.f,    -65520.f,  0x1p-25f,  0x1.8p-25f,
                               0x1.002p0f, 0x1.006p0f, 0x1.01p0f, 0x1.03p0f, 0x1.fffp-15f,
                               3e38f,      3.4e38f,    INFINITY,  -0.f};
  while (values.size() < 4003) {
    const uint32_t low = random() % 2 ? 0x8000 : random() % 0x10000;
    values.push_back(std::bit_cast<float>(uint32_t(random() % 0x8000) << 16 | low));
    values.push_back(float(int(random() % 4096) - 2048) * 0x1.004p-13f);
  }
  std::erase_if(values, [](float v) { return std::isnan(v); });
  for (Scalar type : {Scalar::BF16, Scalar::F16}) {
    const int bits = type == Scalar::BF16 ? 8 : 11, lowest = type == Scalar::BF16 ? -133 : -24;
    std::vector<uint16_t> out(values.size());
    const auto count = int64_t(values.size());
    GetParam().kernels->store({.source = values.data(),
                               .source_stride = count,
                               .rows = 1,
                               .cols = count,
                               .c = out.data(),
                               .type = type,
                               .c_stride = count});
    for (int64_t i = 0; i < count; ++i) {
      const double v = values[size_t(i)];
      int exponent = 0;
      std::frexp(v, &exponent);
      const int step = std::max(exponent - bits, lowest);
      double want = std::isinf(v) ? v : std::ldexp(std::nearbyint(std::ldexp(v, -step)), step);
      if (std::abs(want) >= (type == Scalar::F16 ? 65536.0 : 0x1p128))
        want = std::copysign(INFINITY, v);
      ASSERT_EQ(read_number(out.data(), type, i), want) << scalar_name(type) << " of " << v;
    }
  }
}

}  // namespace
}  // namespace snug::kernels::cpu
