// Values that stages of a pipeline keep, brought to the first one, which writes what training made.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <unordered_map>

#include "engine/engine.h"
#include "models/model.h"

namespace snug::train {

enum class Gathered { All, Trained };

// The whole values of one unit's parameters at a time, all or those that train. To be made and
// called by all ranks alike.
class GatheredUnit {
 public:
  GatheredUnit(models::Model& model, const engine::Engine& engine, Gathered which);

  // Of the model's units. Afterwards rank 0 can read the values.
  void open(size_t unit);
  void close(size_t unit);
  // On the host: what is written of whole models, or what trains as the optimizer sees it.
  at::Tensor read(const nn::Parameter& parameter) const;

 private:
  size_t index_here(nn::Unit* unit) const;
  void bring(const nn::Parameter& parameter, int64_t from);

  const engine::Engine& engine_;
  Gathered which_;
  at::ScalarType sent_type_;      // between stages
  std::vector<nn::Unit*> units_;  // of the model
  std::unordered_map<const nn::Parameter*, at::Tensor> values_;
};

}  // namespace snug::train
