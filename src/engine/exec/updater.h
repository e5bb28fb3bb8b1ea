// How the gradients of a step become new weights: after its backward, in it, or beside the next
// step. A run has one updater (engine/run.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/optim/optimizer.h"

namespace snug::exec {

// What forward and backward of all micro-batches of a step are for.
enum class Sweep { Measure, Update };

class Updater {
 public:
  virtual ~Updater() = default;

  // Whether a sweep updates the weights as it goes: before anyone has seen its gradients, so that
  // clipping needs a sweep before it that only measures them.
  virtual bool updates_in_sweep() const { return false; }
  // `options`: of the update that is in the sweep.
  virtual void begin_sweep(Sweep /*sweep*/, const optim::StepOptions& /*options*/) {}
  virtual void end_sweep() {}
  // Of this process's gradients of the last sweep, as they are (loss scaling is in them). Adds up
  // those that pipeline stages have in common first: call it once for each sweep. On cuda the host
  // waits here.
  virtual double sum_of_squares() = 0;
  // Takes an update that was not in the sweep, or starts it.
  virtual void update(const optim::StepOptions& /*options*/) {}

  // Whether a step uses the weights from before the last update, which is still under way then.
  virtual bool is_late() const { return false; }
  // Until no update is under way. Throws what the update threw.
  virtual void wait() {}
  // wait(), and the device has the latest weights.
  virtual void finish() {}
};

}  // namespace snug::exec
