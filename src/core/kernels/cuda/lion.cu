// One launch for a list of tensors, as in adamw.cu; one element a thread at a time.
// Bytes an element, P of the weight's type, G of the gradient's, S of the state's:
//   update_elements: reads P + G + S (with a master 4 for P), writes P + S (and 4)
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/optimizers.h"

#include "core/kernels/cuda/element_updates.cuh"
#include "core/kernels/cuda/rounding.cuh"
#include "core/kernels/optimizer_formulas.h"
#include "core/kernels/optimizers.h"

namespace snug::kernels::cuda {
namespace {

// 0 stays 0 and NaN stays NaN.
__device__ float sign_of(float x) { return x > 0 ? 1.f : x < 0 ? -1.f : x; }

struct Lion {
  using Described = Keyed<LionTensor>;
  using Factors = LionFactors;

  template <class P, class G, class S>
  static __device__ void update(const Described& t, const Factors& f, float scale, int64_t i) {
    auto* param = static_cast<P*>(t.param);
    auto* average = static_cast<S*>(t.exp_avg);
    const Unfused g = Unfused(to_float(static_cast<const G*>(t.grad)[i])) * scale;
    Unfused m = to_float(average[i]);
    Unfused p = t.master != nullptr ? t.master[i] : to_float(param[i]);
    p = lion_weight(p, Unfused(sign_of(lion_direction(m, g, f).value)), f);
    m = lion_average(m, g, f);
    const uint32_t random = f.stochastic ? random_bits(t.random_key, i) : 0;
    average[i] = from_float<S>(rounded<S>(m.value, f.stochastic, random >> 16));
    const bool by_chance = f.stochastic && t.master == nullptr;
    param[i] = from_float<P>(rounded<P>(p.value, by_chance, random));
    if (t.master != nullptr) t.master[i] = p.value;
  }
};

}  // namespace

void lion_step(std::span<const LionTensor> tensors, const LionOptions& options,
               const float* grad_scale, cudaStream_t stream) {
  update_tensors<Lion>(keyed(tensors, options), lion_factors(options, tensors), grad_scale, stream,
                       "lion_step");
}

}  // namespace snug::kernels::cuda
