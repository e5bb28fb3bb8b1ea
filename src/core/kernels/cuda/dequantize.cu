// A thread makes eight neighbours: in 4 bits they are one aligned word of codes and have one scale.
// Products are rounded one by one, as on the CPU, so that both devices make the same numbers. Bytes
// an element, T those of the number's type:
//   dequantize_4bit: reads 1/2 + 1/16 (double quantization 1/2 + 1/64), writes T
//   dequantize_int8: reads 1, writes T
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/operators.h"

#include <algorithm>

#include "base/error.h"
#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/dynamic_map.h"

namespace snug::kernels::cuda {
namespace {

constexpr int kPerThread = 8;
constexpr int kThreads = 256;

// Handed to the kernel by value: the host's constants.
struct Tables {
  float values[16];
  float scale_map[256];
};

struct Parts {
  int64_t begin = 0, end = 0, cols = 0;
  const uint8_t* codes = nullptr;
  const float* scales = nullptr;  // null with double quantization
  const uint8_t* scale_codes = nullptr;
  const float* nested_scales = nullptr;
  const float* mean = nullptr;
};

// Elements first to first + 7, as far as they are asked for.
template <class T>
__device__ void write_numbers(const float (&numbers)[kPerThread], int64_t first, const Parts& parts,
                              T* out) {
  T* to = out + (first - parts.begin);
  if (parts.begin % 4 == 0 && first >= parts.begin && first + kPerThread <= parts.end) {
    for (int half = 0; half < kPerThread; half += 4) {
      Four<T> four;
      for (int k = 0; k < 4; ++k) four.values[k] = from_float<T>(numbers[half + k]);
      *reinterpret_cast<Four<T>*>(to + half) = four;
    }
    return;
  }
  for (int k = 0; k < kPerThread; ++k) {
    if (first + k >= parts.begin && first + k < parts.end) to[k] = from_float<T>(numbers[k]);
  }
}

__device__ float scale_of(const Parts& parts, const Tables& tables, int64_t block) {
  if (parts.scales != nullptr) return parts.scales[block];
  const float nested = parts.nested_scales[block / kScaleBlock];
  return __fadd_rn(__fmul_rn(tables.scale_map[parts.scale_codes[block]], nested), *parts.mean);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    dequantize_4bit(const __grid_constant__ Parts parts, const __grid_constant__ Tables tables,
                    T* out) {
  __shared__ float
      values[16];  // lanes look up different ones, which constant memory serves in turn
  if (threadIdx.x < 16) values[threadIdx.x] = tables.values[threadIdx.x];
  __syncthreads();
  const int64_t group = parts.begin / kPerThread + blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  const int64_t first = group * kPerThread;
  if (first >= parts.end) return;
  // Behind the codes there are always the scales, so that a whole word may be read.
  const uint32_t codes = reinterpret_cast<const uint32_t*>(parts.codes)[group];
  const float scale = scale_of(parts, tables, first / kWeightBlock);
  float numbers[kPerThread];
  for (int k = 0; k < kPerThread; ++k) {
    const uint32_t byte = codes >> (8 * (k / 2));
    numbers[k] = __fmul_rn(values[k % 2 == 0 ? (byte >> 4) & 15 : byte & 15], scale);
  }
  write_numbers(numbers, first, parts, out);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    dequantize_int8(const __grid_constant__ Parts parts, T* out) {
  const int64_t group = parts.begin / kPerThread + blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  const int64_t first = group * kPerThread;
  if (first >= parts.end) return;
  const uint2 words = reinterpret_cast<const uint2*>(parts.codes)[group];
  float numbers[kPerThread];
  for (int k = 0; k < kPerThread; ++k) {
    // The last word may reach beyond the codes, whose rows then have no scale.
    const int64_t element = first + k;
    const uint32_t word = k < 4 ? words.x : words.y;
    const auto code = static_cast<int8_t>(word >> (8 * (k % 4)));
    const float scale = element < parts.end ? parts.scales[element / parts.cols] : 0.0f;
    numbers[k] = __fmul_rn(__fmul_rn(static_cast<float>(code), scale), kInt8Step);
  }
  write_numbers(numbers, first, parts, out);
}

Parts parts_of(const DequantizeOnDevice& args) {
  const QuantizedLayout layout = quantized_layout(args.format, args.rows, args.cols);
  const auto floats = [&](int64_t at) { return reinterpret_cast<const float*>(args.bytes + at); };
  Parts parts{.begin = args.begin,
              .end = args.begin + args.count,
              .cols = args.cols,
              .codes = args.bytes + layout.codes};
  if (traits(args.format).nested) {
    parts.scale_codes = args.bytes + layout.scales;
    parts.nested_scales = floats(layout.nested_scales);
    parts.mean = floats(layout.mean);
  } else {
    parts.scales = floats(layout.scales);
  }
  return parts;
}

Tables tables_for(QuantizedFormat format) {
  Tables tables;
  std::copy_n(traits(format).values, 16, tables.values);
  std::copy_n(signed_dynamic_map().values, 256, tables.scale_map);
  return tables;
}

}  // namespace

void dequantize(const DequantizeOnDevice& args, cudaStream_t stream) {
  if (args.count == 0) return;
  const Parts parts = parts_of(args);
  const int64_t groups = (parts.end + kPerThread - 1) / kPerThread - parts.begin / kPerThread;
  const int64_t blocks = blocks_for(groups, kThreads);
  with_type(args.type, [&](auto type) {
    using T = decltype(type);
    T* out = static_cast<T*>(args.out);
    if (traits(args.format).four_bits()) {
      launch("dequantize", dequantize_4bit<T>, blocks, kThreads, 0, stream, parts,
             tables_for(args.format), out);
    } else {
      launch("dequantize", dequantize_int8<T>, blocks, kThreads, 0, stream, parts, out);
    }
  });
}

}  // namespace snug::kernels::cuda
