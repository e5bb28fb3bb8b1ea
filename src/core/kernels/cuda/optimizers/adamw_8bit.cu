// A warp takes a quantized block of 256 elements at a time, eight a lane in two runs of four
// neighbours: the moments wait in registers until shuffles have found the block's largest
// magnitude, and every array is read and written once. Codes become numbers, and numbers codes, by
// the arithmetic of core/kernels/dynamic_map.h, whose few factors travel with the
// launch. Bytes an element, P of the weight's type, G of the gradient's:
//   update_list: reads P + G + 2 (with a master 4 for P), writes P + 2 (and 4); 16 a block of 256
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/optimizers/optimizers.h"

#include "core/kernels/cuda/optimizers/tensor_list.cuh"
#include "core/kernels/cuda/rounding.cuh"
#include "core/kernels/dynamic_map.h"
#include "core/kernels/optimizer_formulas.h"
#include "core/kernels/optimizers.h"

namespace snug::kernels::cuda {
namespace {

constexpr int64_t kBlock = kQuantizedBlock;
constexpr int kRun = 128;  // elements that a warp touches at once
static_assert(kBlock == 2 * kRun && kListBlock % kBlock == 0, "a lane holds two runs of four");

struct Tensor : Keyed<AdamW8bitTensor> {
  bool aligned;
};

// What DynamicMap needs for arithmetic, without its list of values.
struct Map {
  float top;
  float borders[8];
  float encode_scale[8];
  float encode_offset[8];
  float decode_scale[8];
};

struct Factors : AdamWFactors {
  Map first;
  Map second;
};

template <bool kSigned>
__device__ float decoded(const Map& map, int code) {
  if (code == 255) return 1.f;
  const int offset = kSigned ? code - 127 : code + 1;
  const uint32_t bits = __float_as_uint(static_cast<float>(abs(offset)) + 0.5f);
  const float mantissa = __uint_as_float((bits & 0x7fffffu) | 0x3f800000u);
  const Unfused steps = Unfused(9.f) * mantissa - 8.f;
  const float value = map.decode_scale[(static_cast<int>(bits >> 23) - 127) & 7] * steps.value;
  return kSigned && offset < 0 ? -value : value;
}

// The nearest value's code for x in [-1, 1]; that of 0 for NaN.
template <bool kSigned>
__device__ int encoded(const Map& map, float x) {
  const float magnitude = isnan(x) ? 0.f : fabsf(x);
  const int above = static_cast<int>(__float_as_uint(magnitude) >> 23) - (127 + kLowestExponent);
  int decade = max(above, 0) * 11 >> 5;  // lowest_decade()
  decade += magnitude > map.borders[decade & 7];
  const Unfused position =
      Unfused(magnitude) * map.encode_scale[decade & 7] + map.encode_offset[decade & 7];
  const int last = ((kSigned ? 1 : 2) << decade) - 1;
  int k = min(static_cast<int>(position.value), last);
  k += x > map.top;
  return kSigned ? 127 + (x < 0 ? -k : k) : k - 1;
}

__device__ float largest_of_warp(float value) {
  for (int step = 16; step > 0; step /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}

// States are allocations of their own, and blocks start at multiples of 256: codes are aligned.
struct Codes {
  int values[4];
};

__device__ Codes read_codes(const uint8_t* codes, int64_t i, int64_t end) {
  Codes result = {};
  if (i + 4 <= end) {
    const uchar4 four = *reinterpret_cast<const uchar4*>(codes + i);
    result = {four.x, four.y, four.z, four.w};
  } else {
    for (int k = 0; k < 4 && i + k < end; ++k) result.values[k] = codes[i + k];
  }
  return result;
}

template <bool kSigned>
__device__ void write_codes(uint8_t* codes, int64_t i, int64_t end, const Map& map,
                            const Floats4& moments, float inverse) {
  uint8_t bytes[4];
  for (int k = 0; k < 4; ++k)
    bytes[k] = static_cast<uint8_t>(encoded<kSigned>(map, moments.values[k] * inverse));
  if (i + 4 <= end) {
    *reinterpret_cast<uchar4*>(codes + i) = make_uchar4(bytes[0], bytes[1], bytes[2], bytes[3]);
  } else {
    for (int k = 0; k < 4 && i + k < end; ++k) codes[i + k] = bytes[k];
  }
}

struct Moments {
  Floats4 first, second;
};

// Four elements' moments, moved on by their gradient, and their weights, updated.
template <class P, class G>
__device__ Moments update(const Tensor& t, const Factors& f, float scale, float first_scale,
                          float second_scale, int64_t i, int64_t end) {
  Moments moments = {};
  if (i >= end) return moments;
  auto* param = static_cast<P*>(t.param);
  const Floats4 g = read_any(static_cast<const G*>(t.grad), i, end, t.aligned);
  const Codes first = read_codes(t.exp_avg, i, end), second = read_codes(t.exp_avg_sq, i, end);
  Floats4 p = t.master != nullptr ? read_any(t.master, i, end, t.aligned)
                                  : read_any(param, i, end, t.aligned);
  Floats4 kept;
  for (int k = 0; k < 4; ++k) {
    Unfused m = Unfused(decoded<true>(f.first, first.values[k])) * first_scale;
    Unfused v = Unfused(decoded<false>(f.second, second.values[k])) * second_scale;
    move_moments(m, v, Unfused(g.values[k]) * scale, f);
    const Unfused w = adamw_weight(Unfused(p.values[k]), m, square_root(v), f);
    if (i + k < end) {
      moments.first.values[k] = m.value;
      moments.second.values[k] = v.value;
    }
    kept.values[k] = w.value;
    const bool by_chance = f.stochastic && t.master == nullptr;
    const uint32_t random = by_chance ? random_bits(t.random_key, i + k) : 0;
    p.values[k] = rounded<P>(w.value, by_chance, random);
  }
  write_any(param, i, end, p, t.aligned);
  if (t.master != nullptr) write_any(t.master, i, end, kept, t.aligned);
  return moments;
}

// fmaxf passes a NaN over: the block's other elements keep their scale.
__device__ float largest_magnitude(const Floats4& a, const Floats4& b) {
  float peak = 0;
  for (int k = 0; k < 4; ++k) peak = fmaxf(peak, fmaxf(fabsf(a.values[k]), fabsf(b.values[k])));
  return largest_of_warp(peak);
}

template <class P, class G>
__global__ void __launch_bounds__(kListThreads)
    update_list(const __grid_constant__ TensorList<Tensor> list, const __grid_constant__ Factors f,
                const float* grad_scale) {
  const float scale = grad_scale != nullptr ? f.grad_scale * *grad_scale : f.grad_scale;
  if (!isfinite(scale)) return;
  const BlockRange at = range_of_block(list, blockIdx.x);
  const Tensor& t = list.tensors[at.tensor];
  const int lane = threadIdx.x % 32;
  const int64_t warps = kListThreads / 32;
  for (int64_t begin = at.begin + threadIdx.x / 32 * kBlock; begin < at.end;
       begin += warps * kBlock) {
    const int64_t block = begin / kBlock, end = min(begin + kBlock, at.end);
    const int64_t i = begin + 4 * lane, j = i + kRun;
    // Lane 0, which writes the new scales, reads the old ones for all lanes.
    float first_scale = lane == 0 ? t.exp_avg_absmax[block] : 0.f;
    float second_scale = lane == 0 ? t.exp_avg_sq_absmax[block] : 0.f;
    first_scale = __shfl_sync(0xffffffffu, first_scale, 0);
    second_scale = __shfl_sync(0xffffffffu, second_scale, 0);
    const Moments low = update<P, G>(t, f, scale, first_scale, second_scale, i, end);
    const Moments high = update<P, G>(t, f, scale, first_scale, second_scale, j, end);
    const float first_peak = largest_magnitude(low.first, high.first);
    const float second_peak = largest_magnitude(low.second, high.second);
    const float first_inverse = 1.0f / fmaxf(first_peak, 1e-38f);
    const float second_inverse = 1.0f / fmaxf(second_peak, 1e-38f);
    write_codes<true>(t.exp_avg, i, end, f.first, low.first, first_inverse);
    write_codes<true>(t.exp_avg, j, end, f.first, high.first, first_inverse);
    write_codes<false>(t.exp_avg_sq, i, end, f.second, low.second, second_inverse);
    write_codes<false>(t.exp_avg_sq, j, end, f.second, high.second, second_inverse);
    if (lane == 0) {
      t.exp_avg_absmax[block] = first_peak;
      t.exp_avg_sq_absmax[block] = second_peak;
    }
  }
}

Map arithmetic_of(const DynamicMap& map) {
  Map result;
  result.top = map.top;
  for (int n = 0; n < 8; ++n) {
    result.borders[n] = map.borders[n];
    result.encode_scale[n] = map.encode_scale[n];
    result.encode_offset[n] = map.encode_offset[n];
    result.decode_scale[n] = map.decode_scale[n];
  }
  return result;
}

bool is_aligned(const AdamW8bitTensor& t) {
  return aligned_to_four(t.param, t.param_type) && aligned_to_four(t.grad, t.grad_type) &&
         aligned_to_four(t.master, Scalar::F32);
}

}  // namespace

void adamw_8bit_step(std::span<const AdamW8bitTensor> tensors, const AdamWOptions& options,
                     const float* grad_scale, cudaStream_t stream) {
  std::vector<Tensor> list_tensors;
  for (const auto& t : keyed(tensors, options)) list_tensors.push_back({t, is_aligned(t)});
  const Factors factors = {adamw_factors(options), arithmetic_of(signed_dynamic_map()),
                           arithmetic_of(unsigned_dynamic_map())};
  const auto kind = [](const Tensor& t) { return std::tuple(t.param_type, t.grad_type); };
  for_each_list(std::span<const Tensor>(list_tensors), kind, [&](const auto& list, int64_t blocks) {
    with_type(list.tensors[0].param_type, [&](auto p) {
      with_type(list.tensors[0].grad_type, [&](auto g) {
        launch("adamw_8bit_step", update_list<decltype(p), decltype(g)>, blocks, kListThreads, 0,
               stream, list, factors, grad_scale);
      });
    });
  });
}

}  // namespace snug::kernels::cuda
