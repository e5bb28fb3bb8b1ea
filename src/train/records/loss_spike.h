// A training loss that stands out from those before it: of a bad row, or the first sign that the
// learning rate is too high.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "report/run_record.h"

namespace snug::train {

struct LossSpike {
  double loss = 0;
  double usual = 0;   // the median of the steps before
  int64_t steps = 0;  // so many of them
};

// Whether the last of `steps` is a spike: more than 1.5 times the median of up to 32 finite losses
// before it, and above it by more than 8 standard deviations, estimated as 1.4826 times the median
// absolute deviation (Rousseeuw and Croux 1993), which one earlier spike hardly moves. Not with
// fewer than 16 losses before it.
std::optional<LossSpike> loss_spike(std::span<const report::StepRecord> steps);

}  // namespace snug::train
