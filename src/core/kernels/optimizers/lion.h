// Lion (Chen et al. 2023):
//   c = beta1 * m + (1 - beta1) * g;  p = p * (1 - lr * weight_decay) - lr * sign(c)
//   m = beta2 * m + (1 - beta2) * g
// 20 bytes read and written for a float32 parameter.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels/optimizers/element_wise.h"

namespace snug::kernels {

struct Lion {
  static constexpr const char* kName = "lion";
  static constexpr int kStates = 1;
  static constexpr std::array<const char*, kStates> kStateNames = {"exp_avg"};

  struct Factors {
    float lr = 0;
    float decay = 1;  // 1 - lr * weight_decay
    float beta1 = 0;
    float beta2 = 0;
  };
  static Factors factors(const ElementOptions& o) {
    return {.lr = static_cast<float>(o.lr),
            .decay = static_cast<float>(1 - o.lr * o.weight_decay),
            .beta1 = static_cast<float>(o.beta1),
            .beta2 = static_cast<float>(o.beta2)};
  }

  // The sign of 0 is 0, and of NaN NaN.
  template <class Math, class F>
  SNUG_FORMULA void update(F& p, F g, F* states, const Factors& f) {
    F& m = states[0];
    p = p * f.decay - f.lr * Math::sign_of(m * f.beta1 + g * (1 - f.beta1));
    m = m * f.beta2 + g * (1 - f.beta2);
  }
};

}  // namespace snug::kernels
