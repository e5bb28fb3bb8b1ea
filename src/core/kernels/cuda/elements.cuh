// Element types on the device, four at a time where the address allows, and sums over a block.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "core/kernels/cuda/launch.cuh"

namespace snug::kernels::cuda {

using BF16 = __nv_bfloat16;
using F16 = __half;

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(BF16 x) { return __bfloat162float(x); }
__device__ inline float to_float(F16 x) { return __half2float(x); }

template <class T>
__device__ inline T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline BF16 from_float<BF16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline F16 from_float<F16>(float x) {
  return __float2half_rn(x);
}

template <class T>
__device__ inline float round_to(float x) {
  return to_float(from_float<T>(x));
}

// Four neighbours, moved by one instruction of 8 or 16 bytes.
template <class T>
struct alignas(4 * sizeof(T)) Four {
  T values[4];
};

struct Floats4 {
  float values[4];
};

// Elements i to i+3 of an array whose start is aligned to four; those from `end` on are 0.
template <class T>
__device__ inline Floats4 read4(const T* array, int64_t i, int64_t end) {
  Floats4 result = {};
  if (i + 4 <= end) {
    const auto four = *reinterpret_cast<const Four<T>*>(array + i);
    for (int k = 0; k < 4; ++k) result.values[k] = to_float(four.values[k]);
  } else {
    for (int k = 0; k < 4 && i + k < end; ++k) result.values[k] = to_float(array[i + k]);
  }
  return result;
}

template <class T>
__device__ inline void write4(T* array, int64_t i, int64_t end, const Floats4& x) {
  if (i + 4 <= end) {
    Four<T> four;
    for (int k = 0; k < 4; ++k) four.values[k] = from_float<T>(x.values[k]);
    *reinterpret_cast<Four<T>*>(array + i) = four;
  } else {
    for (int k = 0; k < 4 && i + k < end; ++k) array[i + k] = from_float<T>(x.values[k]);
  }
}

// Whether read4 and write4 may be used on it.
inline bool aligned_to_four(const void* array, Scalar type) {
  return reinterpret_cast<uintptr_t>(array) % static_cast<uintptr_t>(4 * scalar_bytes(type)) == 0;
}

// As read4 and write4, of arrays that need not be aligned.
template <class T>
__device__ inline Floats4 read_any(const T* array, int64_t i, int64_t end, bool aligned) {
  if (aligned) return read4(array, i, end);
  Floats4 result = {};
  for (int k = 0; k < 4 && i + k < end; ++k) result.values[k] = to_float(array[i + k]);
  return result;
}

template <class T>
__device__ inline void write_any(T* array, int64_t i, int64_t end, const Floats4& x, bool aligned) {
  if (aligned) return write4(array, i, end, x);
  for (int k = 0; k < 4 && i + k < end; ++k) array[i + k] = from_float<T>(x.values[k]);
}

struct Add {
  template <class V>
  __device__ V operator()(V a, V b) const {
    return a + b;
  }
};
struct Max {
  template <class V>
  __device__ V operator()(V a, V b) const {
    return a > b ? a : b;
  }
};

// The shared memory that the launch asks for.
__device__ inline float* dynamic_shared_floats() {
  extern __shared__ float shared_memory[];
  return shared_memory;
}

inline constexpr int64_t kReductionBytes = 32 * 8;  // shared by reduce_block at most

// The same result in every thread of the block. Fixed tree: warps by shuffles, then across warps.
template <class V, class Operation>
__device__ inline V reduce_block(V value, V neutral, Operation operation) {
  __shared__ V of_warp[32];
  for (int step = 16; step > 0; step /= 2) {
    value = operation(value, __shfl_xor_sync(0xffffffffu, value, step));
  }
  __syncthreads();  // the previous reduction's readers are done
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x % 32 < blockDim.x / 32 ? of_warp[threadIdx.x % 32] : neutral;
  for (int step = 16; step > 0; step /= 2) {
    value = operation(value, __shfl_xor_sync(0xffffffffu, value, step));
  }
  return value;
}

__device__ inline float logistic(float x) { return 1.f / (1.f + expf(-x)); }

// A sum of exp(x - from) moved to another maximum; an empty one (from -infinity) stays 0.
__device__ inline float moved(float sum, float from, float to) {
  return from == to ? sum : from == -INFINITY ? 0.f : sum * expf(from - to);
}

// body(T{}) with the device type that `type` names; on the host, around a launch.
template <class Body>
void with_type(Scalar type, const Body& body) {
  switch (type) {
    case Scalar::F32:
      return body(float{});
    case Scalar::BF16:
      return body(BF16{});
    case Scalar::F16:
      return body(F16{});
  }
}

inline int64_t blocks_for(int64_t items, int64_t per_block) {
  return (items + per_block - 1) / per_block;
}

// Threads for a row: whole warps, at most kMostThreads, one for every `per_thread` elements.
inline int64_t threads_for(int64_t elements, int64_t per_thread) {
  constexpr int64_t kMostWarps = kMostThreads / 32;
  const int64_t warps = (elements + 32 * per_thread - 1) / (32 * per_thread);
  return 32 * (warps < 1 ? 1 : warps > kMostWarps ? kMostWarps : warps);
}

}  // namespace snug::kernels::cuda
