// Which techniques to turn on: the fastest combination that fits into a device, among all that
// change neither what is learnt nor what somebody has chosen.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "models/model.h"
#include "plan/cost_model.h"
#include "plan/device_profile.h"
#include "plan/predict.h"
#include "plan/workload.h"

namespace snug::plan {

struct Candidate {
  config::Recipe recipe;
  std::string options;  // what it changes, as typed on the command line; empty: nothing
  Prediction prediction;
  StepCost cost;
};

struct Fit {
  std::optional<Candidate> best;      // none: nothing fits
  std::vector<Candidate> front;       // no other one is both smaller and faster; fastest first
  std::optional<Candidate> smallest;  // of those that do not fit, the one nearest to it
  int64_t tried = 0;
};

// Tries activation checkpointing and offload, optimizer in backward and offload, weight streaming
// and the micro-batch, and on several devices the strategy, each unless the recipe gives it.
// Optimizer, precision and global batch stay: they would change the training.
Fit fit(const models::Model& model, const config::Recipe& recipe, const Workload& work,
        const DeviceProfile& device);

// One recipe on a device, with its timeline; of several devices one, as rank `rank`.
Candidate evaluate(const models::Model& model, const config::Recipe& recipe, const Workload& work,
                   const DeviceProfile& device, int rank = 0);
// As the rank that needs most: stages of a pipeline differ.
Candidate evaluate_neediest(const models::Model& model, const config::Recipe& recipe,
                            const Workload& work, const DeviceProfile& device);
bool fits(const Candidate& candidate, const DeviceProfile& device);

}  // namespace snug::plan
