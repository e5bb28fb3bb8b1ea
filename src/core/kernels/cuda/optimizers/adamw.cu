// Each block updates 16384 elements of one tensor, four a thread at a time: 16-byte moves where the
// arrays allow, element by element where they are not aligned. Factors are computed on the host.
// Bytes an element, P of the weight's type, G of the gradient's, S of the states':
//   update_list: reads P + G + 2 S (with a master 4 for P), writes P + 2 S (and 4)
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/optimizers/optimizers.h"

#include "core/kernels/cuda/optimizers/tensor_list.cuh"
#include "core/kernels/cuda/rounding.cuh"
#include "core/kernels/optimizer_formulas.h"
#include "core/kernels/optimizers.h"

namespace snug::kernels::cuda {
namespace {

struct Tensor : Keyed<AdamWTensor> {
  bool aligned;
};

using Factors = AdamWFactors;

// The four elements from i on, or those of them before `end`.
template <class P, class G, class S>
__device__ void update(const Tensor& t, const Factors& f, float scale, int64_t i, int64_t end) {
  auto* param = static_cast<P*>(t.param);
  auto* first = static_cast<S*>(t.exp_avg);
  auto* second = static_cast<S*>(t.exp_avg_sq);
  const Floats4 g = read4(static_cast<const G*>(t.grad), i, end);
  Floats4 m = read4(first, i, end), v = read4(second, i, end);
  Floats4 p = t.master != nullptr ? read4(t.master, i, end) : read4(param, i, end), kept;
  for (int k = 0; k < 4; ++k) {
    const Unfused gradient = Unfused(g.values[k]) * scale;
    Unfused first_moment = m.values[k], second_moment = v.values[k];
    move_moments(first_moment, second_moment, gradient, f);
    const Unfused weight =
        adamw_weight(Unfused(p.values[k]), first_moment, square_root(second_moment), f);
    const uint32_t random = f.stochastic ? random_bits(t.random_key, i + k) : 0;
    const bool by_chance = f.stochastic && t.master == nullptr;
    kept.values[k] = weight.value;
    p.values[k] = rounded<P>(weight.value, by_chance, random);
    m.values[k] = rounded<S>(first_moment.value, f.stochastic, random >> 16);
    v.values[k] = rounded<S>(second_moment.value, f.stochastic, more_bits(random));
  }
  write4(param, i, end, p);
  write4(first, i, end, m);
  write4(second, i, end, v);
  if (t.master != nullptr) write4(t.master, i, end, kept);
}

template <class P, class G, class S>
__global__ void __launch_bounds__(kListThreads)
    update_list(const __grid_constant__ TensorList<Tensor> list, Factors f,
                const float* grad_scale) {
  const float scale = grad_scale != nullptr ? f.grad_scale * *grad_scale : f.grad_scale;
  if (!isfinite(scale)) return;
  const BlockRange at = range_of_block(list, blockIdx.x);
  const Tensor& tensor = list.tensors[at.tensor];
  if (tensor.aligned) {
    for (int64_t i = at.begin + 4 * threadIdx.x; i < at.end; i += 4 * kListThreads) {
      update<P, G, S>(tensor, f, scale, i, at.end);
    }
  } else {
    // An end just behind i makes read4 and write4 touch one element.
    for (int64_t i = at.begin + threadIdx.x; i < at.end; i += kListThreads) {
      update<P, G, S>(tensor, f, scale, i, i + 1);
    }
  }
}

bool is_aligned(const AdamWTensor& t) {
  return aligned_to_four(t.param, t.param_type) && aligned_to_four(t.grad, t.grad_type) &&
         aligned_to_four(t.exp_avg, t.state_type) && aligned_to_four(t.exp_avg_sq, t.state_type) &&
         aligned_to_four(t.master, Scalar::F32);
}

}  // namespace

void adamw_step(std::span<const AdamWTensor> tensors, const AdamWOptions& options,
                const float* grad_scale, cudaStream_t stream) {
  std::vector<Tensor> list_tensors;
  for (const auto& t : keyed(tensors, options)) list_tensors.push_back({t, is_aligned(t)});
  const Factors factors = adamw_factors(options, tensors);
  for_each_typed_list(std::span<const Tensor>(list_tensors),
                      [&](const auto& list, int64_t blocks, auto p, auto g, auto s) {
                        launch("adamw_step", update_list<decltype(p), decltype(g), decltype(s)>,
                               blocks, kListThreads, 0, stream, list, factors, grad_scale);
                      });
}

}  // namespace snug::kernels::cuda
