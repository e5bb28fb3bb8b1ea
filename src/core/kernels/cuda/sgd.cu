// One launch for a list of tensors, as in adamw.cu; one element a thread at a time.
// Bytes an element, P of the weight's type, G of the gradient's, S of the momentum's:
//   update_elements: reads P + G (and S; with a master 4 for P), writes P (and S; 4)
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/optimizers.h"

#include "core/kernels/cuda/element_updates.cuh"
#include "core/kernels/cuda/rounding.cuh"
#include "core/kernels/optimizer_formulas.h"
#include "core/kernels/optimizers.h"

namespace snug::kernels::cuda {
namespace {

struct Sgd {
  using Described = Keyed<SgdTensor>;
  using Factors = SgdFactors;

  template <class P, class G, class S>
  static __device__ void update(const Described& t, const Factors& f, float scale, int64_t i) {
    auto* param = static_cast<P*>(t.param);
    auto* buffer = static_cast<S*>(t.momentum_buffer);
    Unfused p = t.master != nullptr ? t.master[i] : to_float(param[i]);
    Unfused g = sgd_gradient(Unfused(to_float(static_cast<const G*>(t.grad)[i])) * scale, p, f);
    const uint32_t random = f.stochastic ? random_bits(t.random_key, i) : 0;
    if (f.momentum != 0) {
      const Unfused before = f.first_step ? 0.f : to_float(buffer[i]);
      const Unfused average = sgd_buffer(g, before, f);
      buffer[i] = from_float<S>(rounded<S>(average.value, f.stochastic, random >> 16));
      g = sgd_direction(g, average, f);
    }
    p = sgd_weight(p, g, f);
    const bool by_chance = f.stochastic && t.master == nullptr;
    param[i] = from_float<P>(rounded<P>(p.value, by_chance, random));
    if (t.master != nullptr) t.master[i] = p.value;
  }
};

}  // namespace

void sgd_step(std::span<const SgdTensor> tensors, const SgdOptions& options,
              const float* grad_scale, cudaStream_t stream) {
  update_tensors<Sgd>(keyed(tensors, options), sgd_factors(options, tensors), grad_scale, stream,
                      "sgd_step");
}

}  // namespace snug::kernels::cuda
