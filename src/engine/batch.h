// Converts micro-batches to tensors on the device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "core/nn/objective.h"
#include "core/nn/unit.h"
#include "data/micro_batch.h"

namespace snug::engine {

// Tensors are tagged as data in the ledger; on meta they have shapes only. The rows that count are
// listed if they are few, unless all are wanted. Copies are asynchronous: the batch keeps their
// source alive.
enum class HeadRows { Counted, All };
nn::Batch to_device(const data::MicroBatch& batch, at::Device device,
                    HeadRows rows = HeadRows::Counted, const std::vector<float>& noise = {});
// nn::Batch::noise for each token of a micro-batch: alpha / sqrt(tokens of its document). Empty if
// alpha is 0.
std::vector<float> noise_of(const data::MicroBatch& batch, double alpha);
// A batch's estimate (core/nn/objective.h), sent as its other tensors are.
void set_estimate(nn::Batch& batch, double estimate, at::Device device);
// What an objective counts the terms of a micro-batch by.
nn::BatchCounts counts_of(const data::MicroBatch& batch);
ops::Borders borders(const std::vector<int32_t>& values, ops::Upload& upload);

}  // namespace snug::engine
