// Casts, sums and the gradients' norm.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/elementwise.h"

#include "core/kernels/optimizers.h"
#include "unit/core/kernels/arrays.h"

namespace snug::kernels::cpu {
namespace {

const int64_t kCounts[] = {0, 1, 3, 7, 8, 17, 100, 1000};

// Ties, subnormal numbers, borders of overflow, both signs.
std::vector<double> awkward_values() {
  std::vector<double> values = {0.0,      -0.0,           INFINITY,  -INFINITY, NAN,
                                65504,    65519.9,        65520,     65536,     1e-7,
                                0x1p-24,  0x1p-25,        0x1.8p-25, 0x1p-14,   0x1.ff8p-15,
                                3.3e38,   0x1.fffffep127, 0x1p-126,  0x1p-149,  0x1.01p0,
                                0x1.03p0, 0x1.008p0,      0x1.001p0, 0x1.003p0};
  const size_t count = values.size();
  for (size_t i = 0; i < count; ++i) values.push_back(-values[i]);
  for (const double v : random_values(3000, 1)) values.push_back(v);
  for (const double v : random_values(1000, 2)) values.push_back(v * std::exp2(60 * v));
  return values;
}

TEST(Cast, EveryPairRoundsToNearestEven) {
  on_every_isa([] {
    for (const Scalar from : kAllTypes) {
      for (const Scalar to : kAllTypes) {
        const Array source(from, awkward_values(), 1);
        Array target(to, source.size(), 1);
        cast(source.data(), from, target.data(), to, source.size());
        for (int64_t i = 0; i < source.size(); ++i) {
          const double expected = rounded(source[i], to);
          ASSERT_TRUE(target[i] == expected || (std::isnan(target[i]) && std::isnan(expected)))
              << name_of(from) << " " << source[i] << " -> " << name_of(to) << " " << target[i]
              << ", expected " << expected;
        }
        EXPECT_TRUE(target.guards_intact());
      }
    }
  });
}

// Every NaN must stay one, whatever bits it has.
TEST(Cast, NotANumberNeverBecomesInfinity) {
  on_every_isa([] {
    std::vector<uint32_t> bits = {0x7f800001, 0x7fffffff, 0xffffffff, 0xff800001,
                                  0x7f80ffff, 0x7fc00000, 0x7f808000, 0xff817fff};
    for (const Scalar to : {Scalar::BF16, Scalar::F16}) {
      Array target(to, 8);
      cast(bits.data(), Scalar::F32, target.data(), to, 8);
      for (int64_t i = 0; i < 8; ++i) EXPECT_TRUE(std::isnan(target[i])) << i;
    }
  });
}

TEST(Add, SumsOfEveryTypeAndCount) {
  on_every_isa([] {
    for (const Scalar type : kAllTypes) {
      for (const int64_t count : kCounts) {
        const Array a = random_array(type, count, 1, 1.0, 1), b = random_array(type, count, 2);
        Array c = a;
        add(c.data(), b.data(), c.data(), type, count);
        for (int64_t i = 0; i < count; ++i) ASSERT_EQ(c[i], rounded(a[i] + b[i], type));
        EXPECT_TRUE(c.guards_intact());
      }
    }
  });
}

TEST(Accumulate, MixedTypes) {
  on_every_isa([] {
    for (const Scalar y_type : kAllTypes) {
      for (const Scalar x_type : kAllTypes) {
        for (const int64_t count : kCounts) {
          const Array x = random_array(x_type, count, 1);
          const Array before = random_array(y_type, count, 2, 1.0, 1);
          Array y = before;
          accumulate(y.data(), y_type, x.data(), x_type, count, 0.5f);
          for (int64_t i = 0; i < count; ++i) {
            ASSERT_EQ(y[i], rounded(before[i] + 0.5 * x[i], y_type));
          }
          EXPECT_TRUE(y.guards_intact());
        }
      }
    }
  });
}

TEST(ScaleAndFill, EveryType) {
  on_every_isa([] {
    for (const Scalar type : kAllTypes) {
      for (const int64_t count : kCounts) {
        const Array before = random_array(type, count, 1, 1.0, 1);
        Array x = before;
        scale(x.data(), type, 0.3f, count);
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(x[i], rounded(static_cast<float>(before[i]) * 0.3f, type));
        }
        fill(x.data(), type, 1.1f, count);
        for (int64_t i = 0; i < count; ++i) ASSERT_EQ(x[i], rounded(1.1f, type));
        EXPECT_TRUE(x.guards_intact());
      }
    }
  });
}

TEST(SumOfSquares, ListsOfTensors) {
  on_every_isa([] {
    std::vector<Array> arrays;
    for (const Scalar type : kAllTypes) {
      for (const int64_t count : {0, 1, 3, 7, 100, 70001}) {
        arrays.push_back(random_array(type, count, count + 1, 1.0, 1));
      }
    }
    std::vector<TensorView> views;
    double expected = 0;
    for (const Array& array : arrays) {
      views.push_back({array.size(), array.data(), array.type()});
      for (const double v : array.values()) expected += v * v;
    }
    const SumOfSquares one = sum_of_squares(views, 1), two = sum_of_squares(views, 2);
    EXPECT_NEAR(one.value, expected, 1e-11 * expected);
    EXPECT_TRUE(one.finite);
    EXPECT_EQ(one.value, two.value);
  });
}

TEST(SumOfSquares, LargeFloatsDoNotOverflow) {
  const Array large(Scalar::F32, {3e38, 3e38, 1});
  const TensorView view = {3, large.data(), Scalar::F32};
  EXPECT_TRUE(sum_of_squares({&view, 1}).finite);
}

TEST(SumOfSquares, OneBadElementAnywhereIsSeen) {
  on_every_isa([] {
    for (const Scalar type : kAllTypes) {
      for (const int64_t where : {0, 5, 63, 70000}) {
        for (const double bad : {double{INFINITY}, double{NAN}, -double{INFINITY}}) {
          Array array = random_array(type, 70001, 1);
          array.set(where, bad);
          const TensorView view = {array.size(), array.data(), type};
          EXPECT_FALSE(sum_of_squares({&view, 1}, 2).finite) << where;
        }
      }
    }
  });
}

}  // namespace
}  // namespace snug::kernels::cpu
