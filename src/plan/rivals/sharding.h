// What PyTorch's DDP and FSDP hold on each of several GPUs, as Lightning sets them up, and
// activation checkpointing. As in the models, autograd itself runs on meta; what is written here is
// only what those wrappers allocate and free, and when.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace snug::plan::rivals {

enum class Sharding {
  None,
  // Gradients are copied into buckets, which are as large as they are, to be summed.
  Ddp,
  // Gradients lie in DDP's buckets, which stay.
  DdpBucketViews,
  // FSDP without a wrapping policy: the whole model is one flat parameter, there from the first
  // forward's beginning to the backward's end.
  FsdpWhole,
  // FSDP around each block and around the rest.
  FsdpUnits,
  // DeepSpeed's, with the optimizer on the host: `DeepSpeedStrategy(stage=3,
  // offload_optimizer=True)`.
  Zero3Offload,
  // accelerate's FSDP2 around each block, the embedding, and the head with its norm (FullyShard).
  FullyShard,
  // … of which weights stay whole from forward to backward (`reshard_after_forward: false`).
  FullyShardGradients,
  // DeepSpeed's three stages in transformers' Trainer.
  ZeroStates,
  ZeroGradients,
  ZeroWeights,
};
inline bool is_fully_sharded(Sharding sharding) {
  return sharding == Sharding::FullyShard || sharding == Sharding::FullyShardGradients;
}
// 0: not DeepSpeed's in transformers' Trainer.
inline int zero_stage(Sharding sharding) {
  return sharding == Sharding::ZeroStates      ? 1
         : sharding == Sharding::ZeroGradients ? 2
         : sharding == Sharding::ZeroWeights   ? 3
                                               : 0;
}
inline bool is_deepspeed(Sharding sharding) { return zero_stage(sharding) > 0; }
inline bool is_fsdp(Sharding sharding) {
  return sharding == Sharding::FsdpWhole || sharding == Sharding::FsdpUnits;
}

// The weights of one FSDP module as a flat parameter, of which each rank keeps a part.
class FlatWeights {
 public:
  // `slots` are where the module's forward reads its weights; what they hold is freed. They must
  // stay where they are. `gathered`: the type in which they are there, and their gradients summed,
  // which mixed precision makes another than that of the slots.
  FlatWeights(std::vector<at::Tensor*> slots, int64_t ranks, at::ScalarType gathered);
  ~FlatWeights();
  FlatWeights(const FlatWeights&) = delete;
  FlatWeights& operator=(const FlatWeights&) = delete;

  // All weights are there: views of the flat parameter in the slots, for autograd.
  void gather();
  // What gather() brought is freed.
  void release();
  // What gather() has allocated so far, as the ledger numbers allocations; a size of each.
  const std::vector<uint64_t>& gathers() const { return gathers_; }
  // This rank's part, whose gradient is the reduced one.
  const at::Tensor& part() const { return part_; }

 private:
  struct Hook;
  // After autograd has written the flat parameter's gradient.
  void reduce();

  std::vector<at::Tensor*> slots_;
  std::vector<std::vector<int64_t>> sizes_;
  std::vector<int64_t> counts_;
  std::vector<uint64_t> gathers_;
  at::Tensor flat_;  // leaf
  at::Tensor part_;
};

// A gradient of `weight` that autograd has made is copied into its place in a bucket, and freed;
// until it is told to stay.
void gradients_go_into_buckets(const at::Tensor& weight);
void gradients_stay(const at::Tensor& weight);

// module(inputs), of which only the inputs are kept: it runs again on the way back (activation
// checkpointing). Some may be undefined or need no gradient.
using TensorModule = std::function<at::Tensor(const std::vector<at::Tensor>&)>;
at::Tensor recomputed(const std::vector<at::Tensor>& inputs, TensorModule module);
// For functions that keep a tensor by other means than autograd's, which checkpointing does not
// see: within recomputed(), x stays from the first run until the graph goes.
void keep_past_recomputation(const at::Tensor& x);

}  // namespace snug::plan::rivals
