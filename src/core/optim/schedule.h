// The learning rate over the steps: linear warm-up, then constant or down to a floor.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace snug::optim {

enum class Decay { Cosine, Linear, None };

struct Schedule {
  double peak_lr = 0;
  double min_lr = 0;         // never above peak_lr
  int64_t warmup_steps = 0;  // the first step's rate is 0, as in LitGPT and transformers
  int64_t total_steps = 0;
  Decay decay = Decay::Cosine;

  // `step` counts from 0.
  double lr_at(int64_t step) const;
};

}  // namespace snug::optim
