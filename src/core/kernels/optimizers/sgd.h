// SGD, as torch.optim.SGD computes it:
//   g += weight_decay * p;  buf = momentum * buf + (1 - dampening) * g  (first step: buf = g)
//   g = nesterov ? g + momentum * buf : buf;  p -= lr * g
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels/optimizers/element_wise.h"

namespace snug::kernels {

struct Sgd {
  static constexpr const char* kName = "sgd";
  static constexpr int kStates = 1;
  static constexpr std::array<const char*, kStates> kStateNames = {"momentum_buffer"};
  static constexpr bool keeps_states(const ElementOptions& o) { return o.momentum != 0; }
  static constexpr const char* refuses(const ElementOptions& o) {
    const bool is_possible = !o.nesterov || (o.momentum > 0 && o.dampening == 0);
    return is_possible ? nullptr : "Nesterov needs momentum above 0 and no dampening";
  }

  struct Factors {
    float lr = 0;
    float momentum = 0;
    float new_share = 1;  // 1 - dampening, or 1 in the first step
    float weight_decay = 0;
    bool nesterov = false;
    bool first_step = false;
  };
  static Factors factors(const ElementOptions& o) {
    return {.lr = static_cast<float>(o.lr),
            .momentum = static_cast<float>(o.momentum),
            .new_share = o.first_step ? 1.0f : static_cast<float>(1 - o.dampening),
            .weight_decay = static_cast<float>(o.weight_decay),
            .nesterov = o.nesterov,
            .first_step = o.first_step};
  }

  template <class Math, class F>
  SNUG_FORMULA void update(F& p, F g, F* states, const Factors& f) {
    g = g + p * f.weight_decay;
    if (f.momentum != 0) {
      F& buffer = states[0];
      const F fresh = g * f.new_share;
      buffer = f.first_step ? fresh : fresh + buffer * f.momentum;
      g = f.nesterov ? g + buffer * f.momentum : buffer;
    }
    p = p - g * f.lr;
  }
};

}  // namespace snug::kernels
