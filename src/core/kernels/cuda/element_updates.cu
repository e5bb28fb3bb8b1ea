// SGD and Lion, whose elements know nothing of each other: one launch for a list of tensors, as in
// adamw.cu; one element a thread at a time.
// Bytes an element, P of the weight's type, G of the gradient's, S of the state's, which SGD has
// with momentum only:
//   update_elements: reads P + G + S (with a master 4 for P), writes P + S (and 4)
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/optimizers.h"

#include "core/kernels/cuda/rounding.cuh"
#include "core/kernels/cuda/tensor_list.cuh"
#include "core/kernels/optimizer_formulas.h"
#include "core/kernels/optimizers.h"

namespace snug::kernels::cuda {
namespace {

// Rule::update<P, G, S>(tensor, factors, scale, i) moves element i of a Rule::Described, whose
// gradient is to be multiplied by `scale`, by a Rule::Factors. Nothing moves where the scale is not
// finite.
template <class Rule, class P, class G, class S>
__global__ void __launch_bounds__(kListThreads)
    update_elements(const __grid_constant__ TensorList<typename Rule::Described> list,
                    typename Rule::Factors factors, const float* grad_scale) {
  const float scale = grad_scale != nullptr ? factors.grad_scale * *grad_scale : factors.grad_scale;
  if (!isfinite(scale)) return;
  const BlockRange at = range_of_block(list, blockIdx.x);
  for (int64_t i = at.begin + threadIdx.x; i < at.end; i += kListThreads) {
    Rule::template update<P, G, S>(list.tensors[at.tensor], factors, scale, i);
  }
}

// `name` is the step's in errors.
template <class Rule>
void update_tensors(const std::vector<typename Rule::Described>& tensors,
                    const typename Rule::Factors& factors, const float* grad_scale,
                    cudaStream_t stream, const char* name) {
  for_each_typed_list(std::span<const typename Rule::Described>(tensors),
                      [&](const auto& list, int64_t blocks, auto p, auto g, auto s) {
                        launch(name, update_elements<Rule, decltype(p), decltype(g), decltype(s)>,
                               blocks, kListThreads, 0, stream, list, factors, grad_scale);
                      });
}

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

void lion_step(std::span<const LionTensor> tensors, const LionOptions& options,
               const float* grad_scale, cudaStream_t stream) {
  update_tensors<Lion>(keyed(tensors, options), lion_factors(options, tensors), grad_scale, stream,
                       "lion_step");
}

void sgd_step(std::span<const SgdTensor> tensors, const SgdOptions& options,
              const float* grad_scale, cudaStream_t stream) {
  update_tensors<Sgd>(keyed(tensors, options), sgd_factors(options, tensors), grad_scale, stream,
                      "sgd_step");
}

}  // namespace snug::kernels::cuda
