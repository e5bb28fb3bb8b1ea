// A technique is a policy: what happens before and after a unit's forward and backward.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nn/unit.h"

namespace snug::exec {

// One unit's passage through a micro-batch. Policies may look at all of it and change `record`.
struct UnitRun {
  nn::Unit* unit = nullptr;
  int64_t index = 0;      // position in the model
  int64_t num_units = 0;  // in the model
  nn::State input;        // detached from the previous unit's graph
  nn::State output;       // with the unit's graph, if recorded
  bool record = true;     // false: forward keeps no graph, and backward runs it again
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual void before_forward(UnitRun& /*run*/) {}
  virtual void after_forward(UnitRun& /*run*/) {}
  virtual void before_backward(UnitRun& /*run*/) {}
  virtual void after_backward(UnitRun& /*run*/) {}
};

}  // namespace snug::exec
