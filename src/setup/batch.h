// Micro-batches as tensors.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/micro_batch.h"
#include "nn/unit.h"

namespace snug::setup {

// Tagged as data in the ledger. On meta only the shapes arrive. With an ignore_index it is looked
// up which targets count, where few do. Nothing waits: a batch keeps what its copies read.
nn::Batch to_device(const data::MicroBatch& batch, at::Device device,
                    std::optional<int64_t> ignore_index = std::nullopt);
ops::Borders borders(const std::vector<int32_t>& values, ops::Upload& upload);

}  // namespace snug::setup
