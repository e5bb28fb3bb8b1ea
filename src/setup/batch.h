// Micro-batches as tensors.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/micro_batch.h"
#include "nn/unit.h"

namespace snug::setup {

// Tagged as data in the ledger. On meta only the shapes arrive.
nn::Batch to_device(const data::MicroBatch& batch, at::Device device);

}  // namespace snug::setup
