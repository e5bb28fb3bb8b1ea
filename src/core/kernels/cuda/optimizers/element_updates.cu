// Optimizers whose elements know nothing of each other, made from their formulas: one launch for a
// list of tensors, as in adamw.cu; one element a thread at a time.
// Bytes an element, P of the weight's type, G of the gradient's, S of the states' together:
//   update_elements: reads P + G + S (with a master 4 for P), writes P + S (and 4)
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/optimizers/optimizers.h"

#include "core/kernels/cuda/optimizers/tensor_list.cuh"
#include "core/kernels/cuda/rounding.cuh"
#include "core/kernels/optimizers.h"

namespace snug::kernels::cuda {
namespace {

struct Math {
  static __device__ Unfused sign_of(Unfused x) {
    return x.value > 0 ? 1.f : x.value < 0 ? -1.f : x.value;
  }
  static __device__ Unfused square_root(Unfused x) { return cuda::square_root(x); }
};

template <class Formula>
using Described = Keyed<ElementTensor<Formula::kStates>>;

template <class Formula, class P, class G, class S>
__device__ void update(const Described<Formula>& t, const ElementFactors<Formula>& f, float scale,
                       int64_t i) {
  constexpr int kStates = Formula::kStates;
  auto* param = static_cast<P*>(t.param);
  const Unfused g = Unfused(to_float(static_cast<const G*>(t.grad)[i])) * scale;
  Unfused states[kStates];
#pragma unroll
  for (int k = 0; k < kStates; ++k)
    states[k] = f.keeps_states ? to_float(static_cast<const S*>(t.states[k])[i]) : 0.f;
  Unfused p = t.master != nullptr ? t.master[i] : to_float(param[i]);
  Formula::template update<Math>(p, g, states, f);
  const uint32_t random = f.stochastic ? random_bits(t.random_key, i) : 0;
#pragma unroll
  for (int k = 0; k < kStates; ++k)
    if (f.keeps_states)
      static_cast<S*>(t.states[k])[i] = from_float<S>(
          rounded<S>(states[k].value, f.stochastic, k == 0 ? random >> 16 : more_bits(random)));
  const bool by_chance = f.stochastic && t.master == nullptr;
  param[i] = from_float<P>(rounded<P>(p.value, by_chance, random));
  if (t.master != nullptr) t.master[i] = p.value;
}

// Nothing moves where the scale is not finite.
template <class Formula, class P, class G, class S>
__global__ void __launch_bounds__(kListThreads)
    update_elements(const __grid_constant__ TensorList<Described<Formula>> list,
                    ElementFactors<Formula> factors, const float* grad_scale) {
  const float scale = grad_scale != nullptr ? factors.grad_scale * *grad_scale : factors.grad_scale;
  if (!isfinite(scale)) return;
  const BlockRange at = range_of_block(list, blockIdx.x);
  for (int64_t i = at.begin + threadIdx.x; i < at.end; i += kListThreads)
    update<Formula, P, G, S>(list.tensors[at.tensor], factors, scale, i);
}

template <class Formula>
void update_tensors(std::span<const ElementTensor<Formula::kStates>> tensors,
                    const ElementOptions& options, const float* grad_scale, cudaStream_t stream) {
  const ElementFactors<Formula> factors = element_factors<Formula>(options, tensors);
  const std::vector<Described<Formula>> list = keyed(tensors, options);
  for_each_typed_list(std::span<const Described<Formula>>(list),
                      [&](const auto& part, int64_t blocks, auto p, auto g, auto s) {
                        launch(kStepName<Formula>.c_str(),
                               update_elements<Formula, decltype(p), decltype(g), decltype(s)>,
                               blocks, kListThreads, 0, stream, part, factors, grad_scale);
                      });
}

}  // namespace

#define SNUG_ELEMENT_WISE(Formula)                                                     \
  template <>                                                                          \
  void element_step<Formula>(std::span<const ElementTensor<Formula::kStates>> tensors, \
                             const ElementOptions& options, const float* grad_scale,   \
                             cudaStream_t stream) {                                    \
    update_tensors<Formula>(tensors, options, grad_scale, stream);                     \
  }
#include "core/kernels/optimizers/all.def"
#undef SNUG_ELEMENT_WISE

}  // namespace snug::kernels::cuda
