// Time of one optimizer step on a device, from what the step computes, touches and moves: a
// roofline a part. Good for comparing recipes on one device, and for orders of magnitude. Of many
// devices it is the time of one of them. Computation is added up; of copies to the host, states on
// disk, delayed updates and collectives, which run beside it, what takes longer (beside.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "models/model.h"
#include "plan/devices/device_profile.h"
#include "plan/devices/network.h"
#include "plan/predict.h"
#include "recipe/recipe.h"

namespace snug::plan {

struct StepCost {
  double products_seconds = 0;   // matrix products and attention, recomputation included
  double memory_seconds = 0;     // reading and writing activations around them
  double optimizer_seconds = 0;  // the update, where it runs
  double disk_seconds = 0;       // reading and writing states on disk
  double transfer_seconds = 0;   // between host and device, gradients added up on the host included
  double collective_seconds = 0;  // between devices, all of them
  // What of the last four nothing hides.
  double exposed_optimizer_seconds = 0;
  double exposed_disk_seconds = 0;
  double exposed_transfer_seconds = 0;
  double exposed_collective_seconds = 0;
  double idle_seconds = 0;  // pipeline stages that wait for the first and the last micro-batch
  double tokens = 0;        // of the step, on all devices
  double model_flops = 0;   // of the step, on all devices, without what is computed again
  double peak_flops_per_second = 0;  // of all devices
  LinkBytes sent;                    // by each rank

  double seconds() const {
    return products_seconds + memory_seconds + exposed_optimizer_seconds + exposed_disk_seconds +
           exposed_transfer_seconds + exposed_collective_seconds + idle_seconds;
  }
  // What computes, of the whole step.
  double busy_share() const {
    const double busy = products_seconds + memory_seconds + exposed_optimizer_seconds;
    return seconds() > 0 ? busy / seconds() : 0;
  }
  double tokens_per_second() const { return seconds() > 0 ? tokens / seconds() : 0; }
};

// Of an average step of a model with the recipe's adapters: micro-batches of `tokens` tokens in
// documents of `seqlen`. `prediction` may be of a longer one; it is of the rank whose collectives
// count.
StepCost step_cost(const models::Model& model, const recipe::Recipe& recipe,
                   const DeviceProfile& device, const Prediction& prediction, double tokens,
                   double seqlen, int rank = 0);

// The traffic of one axis, priced.
struct AxisCost {
  dist::Axis axis = dist::Axis::Shard;
  GroupPlace place;
  dist::TrafficByOperation traffic{};
  LinkBytes sent;  // by each rank
  double seconds = 0;
};
// Of the axes that have any.
std::vector<AxisCost> axis_costs(const Prediction& prediction, const dist::MeshShape& mesh,
                                 int rank, const Network& network);

}  // namespace snug::plan
