// What data-parallel ranks shard: the stages of ZeRO.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace snug::exec {

// Each stage includes the one before.
enum class ShardingStage { Replicate, OptimizerStates, Gradients, Weights };

}  // namespace snug::exec
