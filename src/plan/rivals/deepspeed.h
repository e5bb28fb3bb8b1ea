// DeepSpeed's ZeRO as accelerate sets it up for transformers' Trainer: each rank keeps float32
// masters and states of its part of the weights; gradients go through a bucket to be reduced, whole
// (stage 1) or a bucket at a time as they come (stage 2); of stage 3 each rank keeps a part of the
// weights too (ZeroWeights). With offload_optimizer masters, states and gradients are on the host,
// where DeepSpeed's Adam takes the place of the recipe's optimizer.
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

struct ZeroOptions {
  int stage = 1;
  recipe::DeepSpeed settings = {};
  int64_t ranks = 1;
  // Stages 1 and 2 keep on the host what the recipe wants on a disk.
  enum class Home { Device, Host, Disk } home = Home::Device;
  bool on_cpu = false;  // which is device and host
};

// `weights` train; they stay the caller's; `order` is of masters, one a group of the Trainer's.
// `gathers`: those of stage 3, if there are any.
std::unique_ptr<Optimizer> zero_optimizer(const recipe::OptimizerOptions& optimizer,
                                          UpdateOrder order, const std::vector<at::Tensor>& weights,
                                          const ZeroOptions& options, ZeroWeights* gathers);

}  // namespace snug::plan::rivals
