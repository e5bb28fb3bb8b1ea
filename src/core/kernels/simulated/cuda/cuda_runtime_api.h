// What the kernels use of CUDA, for g++: the same sources then run on the CPU (../simulation.h).
// The numbers that intrinsics give are those of a device, bit for bit; expf, logf and erfcf are the
// C library's. What is missing here, atomics say, no kernel uses; who needs it adds it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <math.h>
#include <stdlib.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ thread_local  // blocks run one after another, on one thread of the CPU

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct float3 {
  float x, y, z;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(4) uchar4 {
  unsigned char x, y, z, w;
};
inline uchar4 make_uchar4(unsigned char x, unsigned char y, unsigned char z, unsigned char w) {
  return {x, y, z, w};
}

// Where a thread is never changes under it: to the kernels these are constants.
extern const uint3 threadIdx __asm__("snug_simulated_thread_idx");
extern const uint3 blockIdx __asm__("snug_simulated_block_idx");
extern const uint3 blockDim __asm__("snug_simulated_block_dim");
extern const uint3 gridDim __asm__("snug_simulated_grid_dim");

void __syncthreads();
void __syncwarp(unsigned mask = 0xffffffffu);

namespace snug::kernels::simulated {
// What lane `source` of the warp passed, once all lanes of the mask are here.
uint64_t exchange(unsigned mask, uint64_t value, unsigned source);
}  // namespace snug::kernels::simulated

template <class T>
T __shfl_sync(unsigned mask, T value, int lane) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = snug::kernels::simulated::exchange(mask, bits, static_cast<unsigned>(lane));
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  return __shfl_sync(mask, value, static_cast<int>(threadIdx.x % 32) ^ lanes);
}

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorUnsupportedPtxVersion = 222,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchFailure = 719
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerBlockOptin = 97 };
using cudaStream_t = struct CUstream_st*;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  void* attrs;
  unsigned numAttrs;
};

// simulated/no_device.cpp defines these, or core/simulated does, with all the rest of CUDA's.
extern "C" {
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
// Makes it the last error.
cudaError_t simulated_refusal(cudaError_t error);
}

namespace snug::kernels::simulated {
struct Kernel {
  const void* function;
  void (*call)(const void* function, const void* arguments);
  const void* arguments;  // copied
  size_t argument_bytes;
};
cudaError_t allow_shared(const void* function, int bytes);
// Runs the grid or queues it; a Fault (simulation.h) is thrown where a kernel does what it may not.
cudaError_t run(const cudaLaunchConfig_t& config, const Kernel& kernel);

// What CUB's sort takes.
struct Pairs {
  const int32_t *keys, *values;
  int32_t *sorted_keys, *sorted_values;
  int64_t count;
  void* scratch;
  int64_t scratch_bytes;
};
void sort_pairs(const Pairs& pairs, cudaStream_t stream);
}  // namespace snug::kernels::simulated

template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute, int bytes) {
  return snug::kernels::simulated::allow_shared(reinterpret_cast<const void*>(kernel), bytes);
}

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  using Values = std::tuple<Parameters...>;
  static_assert((std::is_trivially_copyable_v<Parameters> && ...));
  const Values values(std::forward<Arguments>(arguments)...);
  const auto call = [](const void* function, const void* tuple) {
    std::apply(reinterpret_cast<void (*)(Parameters...)>(const_cast<void*>(function)),
               *static_cast<const Values*>(tuple));
  };
  return snug::kernels::simulated::run(
      *config, {reinterpret_cast<const void*>(kernel), call, &values, sizeof(values)});
}
