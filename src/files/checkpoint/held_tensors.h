// This rank's tensors, each with its place in the unsplit tensor.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "files/checkpoint/index.h"
#include "files/checkpoint/training_checkpoint.h"

namespace snug::checkpoint {

struct HeldTensor {
  StoredPiece stored;  // its name in files and its piece
  at::Tensor tensor;
};

HeldTensor held_parameter(const TrainingTensors& tensors, const optim::NamedTensor& parameter,
                          Contents contents = Contents::Model);
HeldTensor held_state(const TrainingTensors& tensors, const optim::NamedTensor& state);

// All tensors, in the order of TrainingTensors.
std::vector<HeldTensor> all_held(const TrainingTensors& tensors);

}  // namespace snug::checkpoint
