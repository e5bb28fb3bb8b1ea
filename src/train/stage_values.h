// Values that stages of a pipeline keep, brought to the first one, which writes what training made.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <unordered_map>

#include "models/model.h"
#include "setup/engine.h"

namespace snug::train {

// The whole values of one unit's parameters at a time. To be called by all ranks alike.
class GatheredUnit {
 public:
  GatheredUnit(models::Model& model, const setup::Engine& engine);

  // Of the model's units. Afterwards rank 0 can read the values.
  void open(size_t unit);
  void close(size_t unit);
  at::Tensor read(const nn::Parameter& parameter) const;

 private:
  size_t index_here(nn::Unit* unit) const;
  void bring(const nn::Parameter& parameter, int64_t from);

  const setup::Engine& engine_;
  std::vector<nn::Unit*> units_;  // of the model
  std::unordered_map<const nn::Parameter*, at::Tensor> values_;
};

// Runs `work` on the ranks of the first stage, with the adapters of all stages in its model and
// what trains beside them. To be called by all ranks alike.
void with_all_adapters(models::Model& model, const setup::Engine& engine,
                       const std::function<void()>& work);

}  // namespace snug::train
