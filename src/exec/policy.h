// A technique is a policy: what happens before and after a unit's forward and backward.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "nn/unit.h"

namespace snug::exec {

// Units that run one after another within this process: all of a model's, or one of the stretches
// that a stage of a pipeline has.
struct Stretch {
  int64_t begin = 0, end = 0;  // of the process's units
  bool begins_model = true;
  bool ends_model = true;
  bool gradient_leaves = false;  // units before it train: its input wants a gradient
};

// One unit's passage through a micro-batch. Policies may look at all of it and change `record`.
struct UnitRun {
  nn::Unit* unit = nullptr;
  int64_t index = 0;          // among the process's units
  int64_t first_trained = 0;  // units of the stretch before it have no backward
  Stretch stretch;
  // Of the step. Others may run between this one's forward and its backward: what a policy keeps
  // of a unit from one to the other is this micro-batch's.
  int64_t micro_batch = 0;
  const nn::Pass* pass = nullptr;
  nn::State input;       // detached from the previous unit's graph
  nn::State output;      // with the unit's graph, if recorded
  bool training = true;  // a backward follows
  bool record = true;    // false: forward keeps no graph, and backward runs it again

  // Of the model: it computes the loss, and gradients with it. Its backward follows at once, unless
  // a pipeline runs all micro-batches forward first.
  bool is_last() const { return stretch.ends_model && index + 1 == stretch.end; }
  // The same unit in the same micro-batch.
  std::pair<int64_t, int64_t> key() const { return {micro_batch, index}; }
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
