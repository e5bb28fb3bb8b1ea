// Dynamic loss scaling for float16 gradients (Micikevicius et al. 2018), with the constants of
// torch.amp.GradScaler: halve on overflow and skip the step, double after 2000 good steps.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace snug::optim {

class LossScaler {
 public:
  explicit LossScaler(bool enabled) : scale_(enabled ? 65536.0 : 1.0), enabled_(enabled) {}

  double scale() const { return scale_; }
  // Adapts the scale to the norm of the scaled gradients; returns whether the step may be taken.
  bool update(double gradient_norm);

  int64_t good_steps() const { return good_steps_; }
  void restore(double scale, int64_t good_steps) {
    scale_ = scale;
    good_steps_ = good_steps;
  }

 private:
  double scale_;
  bool enabled_;
  int64_t good_steps_ = 0;
};

}  // namespace snug::optim
