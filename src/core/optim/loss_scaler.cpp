// SPDX-License-Identifier: Apache-2.0
#include "core/optim/loss_scaler.h"

#include <cmath>

namespace snug::optim {
namespace {
constexpr int64_t kGrowthInterval = 2000;
}  // namespace

bool LossScaler::update(double gradient_norm) {
  const bool finite = std::isfinite(gradient_norm);
  if (!enabled_) return finite;
  if (!finite) {
    scale_ /= 2;
    good_steps_ = 0;
  } else if (++good_steps_ == kGrowthInterval) {
    scale_ *= 2;
    good_steps_ = 0;
  }
  return finite;
}

}  // namespace snug::optim
