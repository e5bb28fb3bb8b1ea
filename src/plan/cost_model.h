// Time of one optimizer step on a device, from what the step computes, touches and moves: a
// roofline a part, added up. Good for comparing recipes on one device, and for orders of magnitude.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/recipe.h"
#include "models/model.h"
#include "plan/device_profile.h"
#include "plan/predict.h"

namespace snug::plan {

struct StepCost {
  double products_seconds = 0;   // matrix products and attention, recomputation included
  double memory_seconds = 0;     // reading and writing activations around them
  double optimizer_seconds = 0;  // the update, where it runs
  double transfer_seconds = 0;   // between host and device
  double tokens = 0;             // of the step

  double seconds() const {
    return products_seconds + memory_seconds + optimizer_seconds + transfer_seconds;
  }
  double tokens_per_second() const { return seconds() > 0 ? tokens / seconds() : 0; }
};

// Of an average step of a model with the recipe's adapters: micro-batches of `tokens` tokens in
// documents of `seqlen`. `prediction` may be of a longer one.
StepCost step_cost(const models::Model& model, const config::Recipe& recipe,
                   const DeviceProfile& device, const Prediction& prediction, double tokens,
                   double seqlen);

}  // namespace snug::plan
