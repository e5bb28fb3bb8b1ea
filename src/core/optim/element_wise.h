// Optimizers that are a formula (core/kernels/optimizers/element_wise.h): what holds their states.
// Snug's own run in kernels for every device; one from outside runs in a portable loop.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "core/kernels/optimizers/element_wise.h"
#include "core/optim/describe.h"

namespace snug::optim {

kernels::ElementOptions element_options(const recipe::OptimizerOptions& options,
                                        const StepOptions& step, int64_t num_steps, uint64_t seed);

// `Loop` is a class with static functions check(parameter), which throws where that cannot be
// updated, and run(parameter, descriptions, options), which updates the described tensors, all on
// that parameter's device.
template <class Formula, class Loop>
class ElementWise final : public Optimizer {
 public:
  using Entry = kernels::ElementTensor<Formula::kStates>;

  ElementWise(const recipe::OptimizerOptions& options, std::vector<NamedTensor> parameters,
              uint64_t seed)
      : Optimizer(options, std::move(parameters), seed) {
    const memory::CategoryGuard category(memory::Category::Optimizer);
    const kernels::ElementOptions own = element_options(options_, {}, 1, seed_);
    if (const char* why = kernels::refuses<Formula>(own))
      throw UserError("optimizer {}: {}", Formula::kName, why);
    for (const NamedTensor& parameter : parameters_) {
      Loop::check(parameter.tensor, options_);
      if (!kernels::keeps_states<Formula>(own)) continue;
      for (std::vector<at::Tensor>& state : states_)
        state.push_back(zero_state(parameter.tensor, state_type(parameter.tensor)));
    }
  }

 protected:
  void update_range(Range range, const StepOptions& step) override {
    const std::vector<Entry> list = described<Entry>(range, [&](size_t i, Entry& entry) {
      for (size_t k = 0; k < states_.size(); ++k) {
        if (states_[k].empty()) continue;
        entry.states[k] = ops::write_pointer(states_[k][i]);
        entry.state_type = ops::to_scalar(states_[k][i].scalar_type());
      }
    });
    if (!list.empty())
      Loop::run(parameters_.front().tensor, list,
                element_options(options_, step, num_steps_, seed_));
  }

  void append_states(size_t parameter, std::vector<NamedTensor>& all) const override {
    for (size_t k = 0; k < states_.size(); ++k)
      if (!states_[k].empty())
        all.push_back(
            {parameters_[parameter].name + "." + Formula::kStateNames[k], states_[k][parameter]});
  }

 private:
  // By state, then by parameter; without tensors where these options need none.
  std::array<std::vector<at::Tensor>, Formula::kStates> states_;
};

// One element after the other, on one thread of a CPU, rounding to nearest. Its bits are those of
// the compiler's floats: it may fuse a product with a sum.
template <class Formula>
struct PortableLoop {
  using Entry = kernels::ElementTensor<Formula::kStates>;

  static void check(const at::Tensor& parameter, const recipe::OptimizerOptions& options) {
    if (ops::kernel_device(parameter) == at::kCUDA)
      throw UserError(
          "{} updates weights on a CPU only: offload the optimizer there, or train there",
          Formula::kName);
    if (options.stochastic_rounding)
      throw UserError("{} rounds to nearest only; leave out optimizer.stochastic_rounding",
                      Formula::kName);
  }

  static void run(const at::Tensor& /*parameter*/, std::span<const Entry> tensors,
                  const kernels::ElementOptions& options) {
    const auto factors = Formula::factors(options);
    const bool keeps = kernels::keeps_states<Formula>(options);
    for (const Entry& t : tensors)
      for (int64_t i = 0; i < t.count; ++i) {
        float states[Formula::kStates] = {};
        for (int k = 0; keeps && k < Formula::kStates; ++k)
          states[k] = read(t.states[k], t.state_type, i);
        float p = t.master != nullptr ? t.master[i] : read(t.param, t.param_type, i);
        Formula::template update<Math>(p, read(t.grad, t.grad_type, i) * options.grad_scale, states,
                                       factors);
        for (int k = 0; keeps && k < Formula::kStates; ++k)
          write(t.states[k], t.state_type, i, states[k]);
        if (t.master != nullptr) t.master[i] = p;
        write(t.param, t.param_type, i, p);
      }
  }

 private:
  struct Math {
    static float sign_of(float x) { return x > 0 ? 1.0F : x < 0 ? -1.0F : x; }
    static float square_root(float x) { return std::sqrt(x); }
  };
  static float read(const void* from, kernels::Scalar type, int64_t i) {
    if (type == kernels::Scalar::F32) return static_cast<const float*>(from)[i];
    if (type == kernels::Scalar::BF16) return static_cast<const c10::BFloat16*>(from)[i];
    return static_cast<const c10::Half*>(from)[i];
  }
  static void write(void* to, kernels::Scalar type, int64_t i, float value) {
    if (type == kernels::Scalar::F32)
      static_cast<float*>(to)[i] = value;
    else if (type == kernels::Scalar::BF16)
      static_cast<c10::BFloat16*>(to)[i] = value;
    else
      static_cast<c10::Half*>(to)[i] = value;
  }
};

// An optimizer from outside: on a CPU, and on a GPU with its states and updates on the host.
template <class Formula>
MakeOptimizer portable() {
  return [](const recipe::OptimizerOptions& options, std::vector<NamedTensor> parameters,
            uint64_t seed, const std::vector<int64_t>& /*whole_elements*/) {
    return std::make_unique<ElementWise<Formula, PortableLoop<Formula>>>(
        options, std::move(parameters), seed);
  };
}

}  // namespace snug::optim
