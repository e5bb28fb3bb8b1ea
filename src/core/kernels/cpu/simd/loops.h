// What the vectorised operators share: reading and writing a vector of any element type, whole or
// the few elements at the end of a row, and loops over rows. Built on linalg/simd.h; see there why
// every name has internal linkage.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels/cpu/linalg/simd.h"
#include "core/kernels/scalar.h"

namespace snug::kernels::cpu {
namespace {

using I = VectorOf<kLanes>::I;
using U = VectorOf<kLanes>::U;

// A whole vector, or its first `count` lanes (0 < count < kLanes).
struct Whole {};
struct Part {
  int64_t count;
};

// As load(), with bfloat16 widened by the one instruction there is for it: g++ 12 makes five of the
// vector extension's conversion.
template <class T, int W = kLanes>
SNUG_INLINE typename VectorOf<W>::F load_lanes(const typename T::storage* p) {
#ifdef __AVX2__
  if constexpr (W == 8 && __is_same(T, BF16)) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return (typename VectorOf<W>::F)_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
  }
#endif
  return load<W>(T{}, p);
}

template <class T>
SNUG_INLINE F read(const void* array, int64_t i, Whole) {
  return load_lanes<T>(static_cast<const typename T::storage*>(array) + i);
}

// Lanes beyond `count` are 0.
template <class T>
SNUG_INLINE F read(const void* array, int64_t i, Part lanes) {
  typename T::storage copy[kLanes] = {};
  const auto* from = static_cast<const typename T::storage*>(array) + i;
  for (int64_t k = 0; k < lanes.count; ++k) copy[k] = from[k];
  return load_lanes<T>(copy);
}

template <class T>
SNUG_INLINE void write(void* array, int64_t i, F value, Whole) {
  store<kLanes>(T{}, static_cast<typename T::storage*>(array) + i, value);
}

template <class T>
SNUG_INLINE void write(void* array, int64_t i, F value, Part lanes) {
  typename T::storage copy[kLanes];
  store<kLanes>(T{}, copy, value);
  auto* to = static_cast<typename T::storage*>(array) + i;
  for (int64_t k = 0; k < lanes.count; ++k) to[k] = copy[k];
}

SNUG_INLINE I lane_numbers() {
  I numbers;
  for (int k = 0; k < kLanes; ++k) numbers[k] = k;
  return numbers;
}

SNUG_INLINE F magnitude_of(F x) { return (F)((U)x & 0x7fffffffu); }

// `other` in the lanes that lie beyond the row.
SNUG_INLINE F fill_beyond(F value, F, Whole) { return value; }
SNUG_INLINE F fill_beyond(F value, F other, Part lanes) {
  return lane_numbers() < static_cast<int32_t>(lanes.count) ? value : other;
}

// The value that storing as T and loading again would give.
template <class T>
SNUG_INLINE F round_to(F value) {
  if constexpr (__is_same(T, F32)) {
    return value;
  } else if constexpr (__is_same(T, BF16)) {
    const U bits = (U)value;
    const U kept = value != value ? bits | 0x400000u : bits + 0x7fffu + ((bits >> 16) & 1u);
    return (F)(kept & 0xffff0000u);
  } else {
    typename T::storage copy[kLanes];
    store<kLanes>(T{}, copy, value);
    return load<kLanes>(T{}, copy);
  }
}

// body(i, lanes) over [begin, end).
template <class Body>
SNUG_INLINE void sweep(int64_t begin, int64_t end, const Body& body) {
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) body(i, Whole{});
  if (i < end) body(i, Part{end - i});
}

// Four running sums hide the latency of the addition.
constexpr int kSlots = 4;
template <int N>
struct Slot {
  static constexpr int value = N;
};

// body(i, lanes, slot): as sweep, with consecutive vectors in the slots 0 to 3.
template <class Body>
SNUG_INLINE void sweep_slots(int64_t begin, int64_t end, const Body& body) {
  int64_t i = begin;
  for (; i + kSlots * kLanes <= end; i += kSlots * kLanes) {
    body(i, Whole{}, Slot<0>{});
    body(i + kLanes, Whole{}, Slot<1>{});
    body(i + 2 * kLanes, Whole{}, Slot<2>{});
    body(i + 3 * kLanes, Whole{}, Slot<3>{});
  }
  sweep(i, end, [&](int64_t at, auto lanes) { body(at, lanes, Slot<0>{}); });
}

struct Sums {
  F slots[kSlots] = {};
  float total() const { return sum_of_lanes((slots[0] + slots[1]) + (slots[2] + slots[3])); }
};

// body(T{}) with the tag of the element type.
template <class Body>
SNUG_INLINE void with_type(Scalar type, const Body& body) {
  switch (type) {
    case Scalar::F32:
      return body(F32{});
    case Scalar::BF16:
      return body(BF16{});
    case Scalar::F16:
      return body(F16{});
  }
}

}  // namespace
}  // namespace snug::kernels::cpu
