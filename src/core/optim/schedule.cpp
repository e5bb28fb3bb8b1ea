// SPDX-License-Identifier: Apache-2.0
#include "core/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace snug::optim {

double Schedule::lr_at(int64_t step) const {
  if (step < warmup_steps)
    return peak_lr * static_cast<double>(step) / static_cast<double>(warmup_steps);
  if (decay == Decay::None) return peak_lr;
  const double floor = std::min(min_lr, peak_lr);
  const auto decay_steps = static_cast<double>(std::max<int64_t>(1, total_steps - warmup_steps));
  const double progress = std::min(1.0, static_cast<double>(step - warmup_steps) / decay_steps);
  const double left =
      decay == Decay::Linear ? 1 - progress : 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return floor + (peak_lr - floor) * left;
}

}  // namespace snug::optim
