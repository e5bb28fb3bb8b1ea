// A technique is a policy: what happens before and after a unit's forward and backward.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nn/unit.h"

namespace snug::exec {

// One unit's passage through a micro-batch. Policies may look at all of it and change `record`.
struct UnitRun {
  nn::Unit* unit = nullptr;
  int64_t index = 0;          // position in the model
  int64_t num_units = 0;      // in the model
  int64_t first_trained = 0;  // units before it train nothing and have no backward
  const nn::Pass* pass = nullptr;
  nn::State input;       // detached from the previous unit's graph
  nn::State output;      // with the unit's graph, if recorded
  bool training = true;  // a backward follows
  bool record = true;    // false: forward keeps no graph, and backward runs it again

  bool is_last() const { return index + 1 == num_units; }
};

// Hooks around a forward run in the order of the list of policies, those around a backward in the
// reverse order: what was put away last comes back first.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual void before_forward(UnitRun& /*run*/) {}
  virtual void after_forward(UnitRun& /*run*/) {}
  virtual void before_backward(UnitRun& /*run*/) {}
  virtual void after_backward(UnitRun& /*run*/) {}
  // After the last hook of a training micro-batch, in the order of those around a backward.
  virtual void after_micro_batch() {}
  // The micro-batch has failed somewhere between these: let go of what was held for it.
  virtual void abandon() {}
};

}  // namespace snug::exec
