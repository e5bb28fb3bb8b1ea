// Arrays of any element type for the kernels' tests, with guard bytes around them, conversions that
// share no code with the kernels', and comparison against references computed in double.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/kernels/cpu/isa.h"
#include "core/kernels/scalar.h"

namespace snug::kernels::cpu {

inline const Scalar kAllTypes[] = {Scalar::F32, Scalar::BF16, Scalar::F16};

inline const char* name_of(Scalar type) {
  return type == Scalar::F32 ? "F32" : type == Scalar::BF16 ? "BF16" : "F16";
}

// Half the relative distance of neighbouring numbers.
inline double unit_roundoff(Scalar type) {
  return type == Scalar::F32 ? 0x1p-24 : type == Scalar::BF16 ? 0x1p-8 : 0x1p-11;
}

// The nearest number of that type, ties to even, by arithmetic alone.
inline double rounded(double value, Scalar type) {
  if (type == Scalar::F32) return static_cast<float>(value);
  if (!std::isfinite(value) || value == 0) return value;
  const int digits = type == Scalar::BF16 ? 8 : 11;
  const int lowest = type == Scalar::BF16 ? -125 : -13;  // exponent of the smallest normal number
  int exponent;
  std::frexp(value, &exponent);
  const double step = std::ldexp(1.0, std::max(exponent, lowest) - digits);
  const double result = std::nearbyint(value / step) * step;
  const double largest = type == Scalar::BF16 ? 0x1.fep127 : 65504.0;
  return std::abs(result) > largest ? std::copysign(INFINITY, result) : result;
}

class Array {
 public:
  // `shift` elements off the allocation's alignment.
  Array(Scalar type, int64_t count, int shift = 0)
      : type_(type), count_(count), start_(kGuard + shift * scalar_bytes(type)) {
    bytes_.assign(static_cast<size_t>(start_ + count * scalar_bytes(type) + kGuard), kMark);
    for (int64_t i = 0; i < count; ++i) set(i, 0);
  }
  Array(Scalar type, const std::vector<double>& values, int shift = 0)
      : Array(type, static_cast<int64_t>(values.size()), shift) {
    for (int64_t i = 0; i < count_; ++i) set(i, values[i]);
  }

  Scalar type() const { return type_; }
  int64_t size() const { return count_; }
  void* data() { return bytes_.data() + start_; }
  const void* data() const { return bytes_.data() + start_; }
  float* floats() { return static_cast<float*>(data()); }
  bool operator==(const Array& other) const { return bytes_ == other.bytes_; }

  double operator[](int64_t i) const {
    if (type_ == Scalar::F32) {
      float value;
      std::memcpy(&value, address(i), 4);
      return value;
    }
    uint16_t half;
    std::memcpy(&half, address(i), 2);
    const int mantissa_bits = type_ == Scalar::BF16 ? 7 : 10;
    const int bias = type_ == Scalar::BF16 ? 127 : 15;
    const int exponent = (half & 0x7fff) >> mantissa_bits;
    const int mantissa = half & ((1 << mantissa_bits) - 1);
    double value = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                 : std::ldexp(mantissa + (1 << mantissa_bits),
                                              exponent - bias - mantissa_bits);
    if (exponent == 2 * bias + 1) value = mantissa == 0 ? INFINITY : NAN;
    return half & 0x8000 ? -value : value;
  }

  void set(int64_t i, double value) {
    const double near = rounded(value, type_);
    if (type_ == Scalar::F32) {
      const auto single = static_cast<float>(near);
      std::memcpy(address(i), &single, 4);
      return;
    }
    const uint16_t half = type_ == Scalar::BF16 ? bfloat_bits(near) : half_bits(near);
    std::memcpy(address(i), &half, 2);
  }

  std::vector<double> values() const {
    std::vector<double> result;
    for (int64_t i = 0; i < count_; ++i) result.push_back((*this)[i]);
    return result;
  }

  bool guards_intact() const {
    for (int64_t i = 0; i < static_cast<int64_t>(bytes_.size()); ++i) {
      const bool inside = i >= start_ && i < start_ + count_ * scalar_bytes(type_);
      if (!inside && bytes_[i] != kMark) return false;
    }
    return true;
  }

 private:
  static constexpr int64_t kGuard = 128;
  static constexpr unsigned char kMark = 0xa5;

  static uint16_t bfloat_bits(double exact) {
    const auto single = static_cast<float>(exact);
    uint32_t bits;
    std::memcpy(&bits, &single, 4);
    return static_cast<uint16_t>(bits >> 16 | (std::isnan(exact) ? 0x40 : 0));
  }
  static uint16_t half_bits(double exact) {
    const uint16_t sign = std::signbit(exact) ? 0x8000 : 0;
    const double magnitude = std::abs(exact);
    if (std::isnan(exact)) return 0x7e00;
    if (std::isinf(exact)) return sign | 0x7c00;
    if (magnitude < 0x1p-14) return sign | static_cast<uint16_t>(magnitude * 0x1p24);
    int exponent;
    const double fraction = std::frexp(magnitude, &exponent);  // [0.5, 1)
    return sign | static_cast<uint16_t>((exponent + 14) << 10) |
           static_cast<uint16_t>(fraction * 2048 - 1024);
  }
  unsigned char* address(int64_t i) { return bytes_.data() + start_ + i * scalar_bytes(type_); }
  const unsigned char* address(int64_t i) const {
    return bytes_.data() + start_ + i * scalar_bytes(type_);
  }

  Scalar type_;
  int64_t count_;
  int64_t start_;
  std::vector<unsigned char> bytes_;
};

inline std::vector<double> random_values(int64_t count, uint64_t seed, double spread = 1.0) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal(0.0, spread);
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(normal(generator));
  return values;
}

inline Array random_array(Scalar type, int64_t count, uint64_t seed, double spread = 1.0,
                          int shift = 0) {
  return Array(type, random_values(count, seed, spread), shift);
}

// |got - expected| <= tolerance(i), both NaN, or both the same infinity. Reports the worst element.
template <class Tolerance>
void expect_near(const std::vector<double>& got, const std::vector<double>& expected,
                 const Tolerance& tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  double worst = 0;
  size_t where = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]))) continue;
    const double excess = std::abs(got[i] - expected[i]) / tolerance(static_cast<int64_t>(i));
    if (excess > worst || std::isnan(excess)) {
      worst = std::isnan(excess) ? INFINITY : excess;
      where = i;
    }
  }
  if (worst > 1) {
    ADD_FAILURE() << what << ": element " << where << " is " << got[where] << ", expected "
                  << expected[where] << ", " << worst << " times the tolerance";
  }
}

// Relative to each element, plus an absolute part.
inline auto within(const std::vector<double>& expected, double relative, double absolute) {
  return [=](int64_t i) { return relative * std::abs(expected[i]) + absolute; };
}

// body() once for each instruction set of this machine.
template <class Body>
void on_every_isa(const Body& body) {
  for (const Isa isa : {Isa::Portable, Isa::Avx2, Isa::Avx512}) {
    if (isa > best_isa()) continue;
    const ScopedIsa scoped(isa);
    SCOPED_TRACE(isa_name(isa));
    body();
  }
}

}  // namespace snug::kernels::cpu
