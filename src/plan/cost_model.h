// The time of one optimizer step on a device: a roofline per part of the step. Good for comparing
// recipes on one device, and for orders of magnitude; for several devices it is the time of one.
// Computation is added up. Copies to the host, states on disk, delayed updates and collectives
// overlap with it, and only the part that takes longer counts.
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
  double products_seconds = 0;   // matrix products, recomputation included
  double attention_seconds = 0;  // likewise
  double memory_seconds = 0;     // reading and writing activations around them
  double optimizer_seconds = 0;  // the update, where it runs
  double disk_seconds = 0;       // reading and writing states on disk
  double transfer_seconds = 0;   // between host and device, gradients added up on the host included
  double collective_seconds = 0;  // between devices, all of them
  // The parts of the last four that do not overlap with computation.
  double exposed_optimizer_seconds = 0;
  double exposed_disk_seconds = 0;
  double exposed_transfer_seconds = 0;
  double exposed_collective_seconds = 0;
  double idle_seconds = 0;   // pipeline stages waiting for the first and the last micro-batch
  double retry_seconds = 0;  // the allocator's calls to the driver, if it has to retry
  double tokens = 0;         // of the step, on all devices
  double model_flops = 0;    // of the step, on all devices, without recomputation
  double peak_flops_per_second = 0;  // of all devices
  LinkBytes sent;                    // by each rank

  double seconds() const {
    return products_seconds + attention_seconds + memory_seconds + exposed_optimizer_seconds +
           exposed_disk_seconds + exposed_transfer_seconds + exposed_collective_seconds +
           idle_seconds + retry_seconds;
  }
  // The share of the step that computes.
  double busy_share() const {
    const double busy =
        products_seconds + attention_seconds + memory_seconds + exposed_optimizer_seconds;
    return seconds() > 0 ? busy / seconds() : 0;
  }
  double tokens_per_second() const { return seconds() > 0 ? tokens / seconds() : 0; }
};

// An average document's tokens and pictures.
struct DocumentSize {
  double tokens = 0, pictures = 0;
};

// For an average step of a model with the recipe's adapters: micro-batches of `tokens` tokens in
// documents of `document`'s size. `prediction` may be for a longer micro-batch; it is that of
// `rank`.
StepCost step_cost(const models::Model& model, const recipe::Recipe& recipe,
                   const DeviceProfile& device, const Prediction& prediction, double tokens,
                   const DocumentSize& document, int rank = 0);

// The traffic of one axis and its time.
struct AxisCost {
  dist::Axis axis = dist::Axis::Shard;
  GroupPlace place;
  dist::TrafficByOperation traffic{};
  LinkBytes sent;  // by each rank
  double seconds = 0;
};
// For the axes that have traffic.
std::vector<AxisCost> axis_costs(const Prediction& prediction, const dist::MeshShape& mesh,
                                 int rank, const Network& network);

// Overlap of a step's computation with copies between device and host, states on disk and updates
// on the host. On a GPU, copies have a stream of their own and host and disk work in parallel; on a
// CPU nothing overlaps.

// Seconds of a step's computation on the device.
struct Compute {
  double forward = 0, backward = 0;
  double seconds() const { return forward + backward; }
};

// Seconds of other work, by the phase that it can overlap with.
struct Beside {
  double forward = 0, backward = 0;
  double alone = 0;  // overlaps with nothing

  double seconds() const { return forward + backward + alone; }
  Beside& operator+=(const Beside& other);
  // How much longer it makes a step.
  double exposed(const Compute& compute) const;
};

struct StepSize {
  double micro_batches = 1;  // all that run, including those that only measure gradients
  double rounds = 1;         // passes over the micro-batches
  double token_share = 1;    // tokens of a micro-batch / tokens of the prediction's micro-batch
  double trained_bytes = 0;  // of the weights that this rank updates
  double recomputed = 0;     // share of the blocks whose forward runs twice
};

// Copies between device and host: activations out and back, gradients out (and their sums on the
// host if there are several), weights in.
Beside host_copies(const recipe::Recipe& recipe, const DeviceProfile& device,
                   const Prediction& prediction, const StepSize& size);

struct UpdateCost {
  double optimizer_seconds = 0;  // reads states, weights and gradients, writes the first two
  double disk_seconds = 0;       // reads and writes states on disk
  // The parts that do not overlap. An update streams its states through the disk, so that the
  // longer of the two counts; a delayed update on a GPU's host overlaps with the next step.
  double exposed_optimizer_seconds = 0, exposed_disk_seconds = 0;
};
UpdateCost update_cost(const recipe::Recipe& recipe, const DeviceProfile& device,
                       const Prediction& prediction, const StepSize& size, const Compute& compute);

}  // namespace snug::plan
