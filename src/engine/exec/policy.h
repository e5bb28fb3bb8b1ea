// A memory or parallelism technique is a policy: hooks before and after a unit's forward and
// backward.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/nn/unit.h"

namespace snug::exec {

// A range of units that this process runs one after another: the whole model, or one chunk of a
// pipeline stage.
struct UnitRange {
  int64_t begin = 0, end = 0;  // indices into the process's units
  bool begins_model = true;
  bool ends_model = true;
  bool gradient_leaves = false;  // earlier units train, so its input needs a gradient
};

// One unit's forward and backward of one micro-batch. Policies may read all of it and change
// `record`.
struct UnitRun {
  nn::Unit* unit = nullptr;
  int64_t index = 0;          // among the process's units
  int64_t first_trained = 0;  // earlier units of the range have no backward
  UnitRange range;
  // Index within the step. In a pipeline other micro-batches run between this one's forward and its
  // backward, so a policy keeps its data by micro-batch and unit: key().
  int64_t micro_batch = 0;
  const nn::Pass* pass = nullptr;
  nn::State input;            // detached from the previous unit's graph
  nn::State output;           // with the unit's graph, if recorded
  nn::State input_gradients;  // made by the unit's backward
  bool training = true;       // a backward follows
  bool record = true;         // false: forward keeps no graph, and backward runs it again

  // Whether it is the model's last unit, which computes the loss and, often with it, gradients. Its
  // backward follows at once, unless a pipeline runs all forwards first.
  bool is_last() const { return range.ends_model && index + 1 == range.end; }
  // Identifies a unit's run within the step.
  std::pair<int64_t, int64_t> key() const { return {micro_batch, index}; }
};

// Forward hooks run in the order of the list of policies, backward hooks in reverse, so that the
// policies nest.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual void before_forward(UnitRun& /*run*/) {}
  virtual void after_forward(UnitRun& /*run*/) {}
  virtual void before_backward(UnitRun& /*run*/) {}
  virtual void after_backward(UnitRun& /*run*/) {}
  // After the last backward of a micro-batch, in reverse order too.
  virtual void after_micro_batch() {}
  // The micro-batch failed between any two hooks: release what is held for it.
  virtual void abandon() {}
};

// Shared: one may be the run's updater too, or a caller's.
using Policies = std::vector<std::shared_ptr<Policy>>;

}  // namespace snug::exec
