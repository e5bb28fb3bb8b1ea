// The tensors of this rank with the part of the whole that each is.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "checkpoint/index.h"
#include "checkpoint/training_checkpoint.h"

namespace snug::checkpoint {

struct HeldTensor {
  StoredPiece stored;  // as it is called in files
  at::Tensor tensor;
};

HeldTensor held_parameter(const TrainingTensors& tensors, const optim::NamedTensor& parameter,
                          Contents contents = Contents::Model);
HeldTensor held_state(const TrainingTensors& tensors, const optim::NamedTensor& state);

// All of them, in the order of TrainingTensors.
std::vector<HeldTensor> all_held(const TrainingTensors& tensors);

}  // namespace snug::checkpoint
