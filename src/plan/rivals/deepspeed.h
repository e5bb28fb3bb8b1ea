// DeepSpeed's ZeRO without offloading, as accelerate sets it up for transformers' Trainer: each
// rank keeps float32 masters and states of its part of the weights; gradients go through a bucket
// to be reduced, whole (stage 1) or a bucket at a time as they come (stage 2); of stage 3 each rank
// keeps a part of the weights too (ZeroWeights).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "plan/rivals/optimizer.h"
#include "recipe/import/deepspeed.h"

namespace snug::plan::rivals {

class ZeroWeights;

// Its settings for a model of this width: what transformers puts in the place of "auto".
recipe::DeepSpeed settled(recipe::DeepSpeed settings, int64_t hidden_size);

// `weights` train; they stay the caller's; `order` is of masters, one a group of the Trainer's.
// `gathers`: those of stage 3, which is what non-null says.
std::unique_ptr<Optimizer> zero_optimizer(const recipe::OptimizerOptions& options,
                                          UpdateOrder order, const std::vector<at::Tensor>& weights,
                                          int stage, const recipe::DeepSpeed& settings,
                                          int64_t ranks, ZeroWeights* gathers);

}  // namespace snug::plan::rivals
