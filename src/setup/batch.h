// Micro-batches as tensors.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "data/micro_batch.h"
#include "nn/unit.h"

namespace snug::setup {

// Tagged as data in the ledger. On meta only the shapes arrive.
nn::Batch to_device(const data::MicroBatch& batch, at::Device device);
at::Tensor to_device(const std::vector<int32_t>& values, at::Device device);

}  // namespace snug::setup
