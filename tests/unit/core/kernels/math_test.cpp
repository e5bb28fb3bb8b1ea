// The vectorised exp and normal distribution, element by element, on the portable build. The other
// builds are the same source; their operators' tests cover them.
// SPDX-License-Identifier: Apache-2.0
#define SNUG_SIMD_WIDTH 4
#include "core/kernels/cpu/simd/math.h"

#include <gtest/gtest.h>

#include <cmath>

namespace snug::kernels::cpu {
namespace {

float exp_of(float x) { return exp_any(broadcast(x))[0]; }

double distance_in_ulps(float got, double expected) {
  const double ulp = std::ldexp(1.0, std::max(std::ilogb(expected), -126) - 23);
  return std::abs(got - expected) / ulp;
}

TEST(VectorExp, IsWithinOneUlpOverTheWholeRange) {
  double worst = 0;
  float at = 0;
  // Steps over the floats from tiny to 88.7, both signs.
  for (uint32_t bits = 0x30000000; bits < 0x42b17218; bits += 677) {
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const float x = float_of_bits(bits | sign);
      if (x < -86.64f) continue;
      const double distance = distance_in_ulps(exp_of(x), std::exp(static_cast<double>(x)));
      if (distance > worst) {
        worst = distance;
        at = x;
      }
    }
  }
  EXPECT_LT(worst, 1.2) << "at " << at;
  EXPECT_GT(worst, 0.4);
}

TEST(VectorExp, EndsOfTheRange) {
  EXPECT_EQ(exp_of(0), 1);
  EXPECT_EQ(exp_of(-0.0f), 1);
  EXPECT_EQ(exp_of(88.8f), INFINITY);
  EXPECT_EQ(exp_of(INFINITY), INFINITY);
  EXPECT_TRUE(std::isfinite(exp_of(88.72f)));
  EXPECT_EQ(exp_of(-INFINITY), 0);
  EXPECT_EQ(exp_of(-3e38f), 0);
  EXPECT_TRUE(std::isnan(exp_of(NAN)));
  EXPECT_EQ(exp_of(-87), 0);
}

TEST(NormalCdf, IsErfcWithFloatPrecision) {
  for (float x = -12; x < 12; x += 0.00371f) {
    const double expected = 0.5 * std::erfc(-static_cast<double>(x) / std::sqrt(2.0));
    const float got = normal_cdf(broadcast(x), bell(broadcast(x)))[0];
    // exp(-x^2/2) carries the rounding of x^2/2.
    EXPECT_NEAR(got / expected, 1, 4e-7 + 1e-7 * x * x) << x;
  }
}

}  // namespace
}  // namespace snug::kernels::cpu
