// One launch for a list of tensors, as in adamw.cu; one element a thread at a time.
// Bytes an element, P of the weight's type, G of the gradient's, S of the momentum's:
//   update_elements: reads P + G (and S; with a master 4 for P), writes P (and S; 4)
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/optimizers.h"

#include "base/error.h"
#include "core/kernels/cpu/random_key.h"
#include "core/kernels/cuda/element_updates.cuh"
#include "core/kernels/cuda/random_rounding.cuh"
#include "core/kernels/cuda/unfused.cuh"
#include "core/kernels/optimizer_formulas.h"

namespace snug::kernels::cuda {
namespace {

struct Tensor {
  int64_t count;
  void* param;
  const void* grad;
  void* buffer;
  float* master;
  uint64_t random_key;
  Scalar param_type;
  Scalar grad_type;
  Scalar state_type;
};

struct SgdFactors {
  float lr;
  float momentum;
  float new_share;
  float weight_decay;
  float grad_scale;
  bool nesterov;
  bool first_step;
  bool stochastic;
};

struct Sgd {
  using Described = Tensor;
  using Factors = SgdFactors;

  template <class P, class G, class S>
  static __device__ void update(const Tensor& t, const Factors& f, float scale, int64_t i) {
    auto* param = static_cast<P*>(t.param);
    auto* buffer = static_cast<S*>(t.buffer);
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

Tensor described(const cpu::SgdTensor& t, const cpu::SgdOptions& options) {
  SNUG_CHECK(t.state_type != Scalar::F16, "SGD states are float32 or bfloat16");
  SNUG_CHECK(options.momentum == 0 || t.momentum_buffer != nullptr,
             "SGD with momentum {} needs a momentum buffer for each tensor", options.momentum);
  return {t.count,           t.param,     t.grad,
          t.momentum_buffer, t.master,    cpu::random_key(options.seed, options.step, t.tensor_id),
          t.param_type,      t.grad_type, t.state_type};
}

}  // namespace

void sgd_step(std::span<const cpu::SgdTensor> tensors, const cpu::SgdOptions& options,
              const float* grad_scale, cudaStream_t stream) {
  SNUG_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
             "Nesterov needs momentum above 0 (is {}) and no dampening (is {})", options.momentum,
             options.dampening);
  std::vector<Tensor> described_tensors;
  for (const cpu::SgdTensor& t : tensors) described_tensors.push_back(described(t, options));
  const SgdFactors factors = {static_cast<float>(options.lr),
                              static_cast<float>(options.momentum),
                              options.first_step ? 1.f : static_cast<float>(1 - options.dampening),
                              static_cast<float>(options.weight_decay),
                              options.grad_scale,
                              options.nesterov,
                              options.first_step,
                              options.stochastic_rounding};
  update_tensors<Sgd>(described_tensors, factors, grad_scale, stream, "sgd_step");
}

}  // namespace snug::kernels::cuda
