// SPDX-License-Identifier: Apache-2.0
#include "train/records/loss_spike.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "report/tables.h"

namespace snug::train {

std::optional<LossSpike> loss_spike(std::span<const report::StepRecord> steps) {
  constexpr size_t kFewest = 16, kMost = 32;
  constexpr double kTimes = 1.5, kDeviations = 8, kOfNormal = 1.4826;
  if (steps.empty() || !std::isfinite(steps.back().loss)) return std::nullopt;
  std::vector<double> before;
  for (auto step = steps.rbegin() + 1; step != steps.rend() && before.size() < kMost; ++step)
    if (std::isfinite(step->loss)) before.push_back(step->loss);
  if (before.size() < kFewest) return std::nullopt;
  const double loss = steps.back().loss, usual = report::median(before);
  for (double& value : before) value = std::abs(value - usual);
  const double limit = usual + kDeviations * kOfNormal * report::median(before);
  if (loss <= std::max(limit, kTimes * usual)) return std::nullopt;
  return LossSpike{.loss = loss, .usual = usual, .steps = static_cast<int64_t>(before.size())};
}

}  // namespace snug::train
