// What ranks that share a model cut into parts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace snug::exec {

// Each stage cuts what the one before cuts, and more.
enum class ShardingStage { Replicate, OptimizerStates, Gradients, Weights };

}  // namespace snug::exec
