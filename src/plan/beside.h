// What a step does beside its computation, and how much of that nothing hides: copies between
// device and host, states on disk, updates on the host. On a GPU copies have a stream of their own,
// and the host and its disk are processors of their own; on a cpu whoever copies does not compute.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "plan/devices/device_profile.h"
#include "plan/predict.h"
#include "recipe/recipe.h"

namespace snug::plan {

// Seconds of a step's computation on the device.
struct Compute {
  double forward = 0, backward = 0;
  double seconds() const { return forward + backward; }
};

// Seconds of something else, by the part of the step that it may run beside.
struct Beside {
  double forward = 0, backward = 0;
  double alone = 0;  // somebody waits for it at once

  double seconds() const { return forward + backward + alone; }
  Beside& operator+=(const Beside& other);
  // By how much it makes a step longer.
  double exposed(const Compute& compute) const;
};

// How much of it a step has.
struct StepSize {
  double micro_batches = 1;  // all that run, those that only measure gradients included
  double rounds = 1;         // that its micro-batches are run through
  double token_share = 1;    // tokens of one of them in those of the prediction's
  double trained_bytes = 0;  // of weights that this rank updates
};

// Between device and host: activations out and back, gradients out (and added up there, where there
// are several), weights in.
Beside host_copies(const recipe::Recipe& recipe, const DeviceProfile& device,
                   const Prediction& prediction, const StepSize& size);

struct UpdateCost {
  double optimizer_seconds = 0;  // states, weights and gradients read, the first two written
  double disk_seconds = 0;       // states on disk read and written
  // Of each, what nothing hides. An update goes through the disk part by part, so that the longer
  // of the two counts; a delayed one on a GPU's host runs beside the next step.
  double exposed_optimizer_seconds = 0, exposed_disk_seconds = 0;
};
UpdateCost update_cost(const recipe::Recipe& recipe, const DeviceProfile& device,
                       const Prediction& prediction, const StepSize& size, const Compute& compute);

}  // namespace snug::plan
