// The same recipe as LitGPT would train it: eager PyTorch on a GPU, padding, whole logits. Its
// model and its loop run operator by operator on meta, under the ledger, so that autograd itself
// decides what is kept; nothing is fitted.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "models/model.h"
#include "plan/predict.h"
#include "plan/rivals/litgpt_devices.h"
#include "recipe/recipe.h"

namespace snug::plan {

// Whose loop: `litgpt finetune_full` or, with adapters, `finetune_lora` (Fabric: logits in float32,
// which the latter has in pieces; gradients dropped after the update, the last micro-batch's logits
// alive through the next forward), or LitGPT's model in a
// Lightning Trainer (gradients dropped between forward and backward).
enum class LitgptLoop { Fabric, Trainer };

struct LitgptOptions {
  LitgptLoop loop = LitgptLoop::Fabric;
  // Whether the GPU has fused attention for the type; older ones fall back to plain products.
  bool fused_attention = true;
  int64_t batch = 1, tokens = 1;  // samples and the padded length of a micro-batch
  int64_t reserved_limit = 0;     // what the allocator may reserve; 0: no limit
  LitgptSharding sharding = LitgptSharding::None;
  int64_t ranks = 1;  // GPUs; the global batch is that of all of them
};

struct LitgptLike {
  Prediction prediction;
  int64_t after_forward = 0;       // live right after a forward, as Lightning scripts print it
  int64_t kept_by_blocks = 0;      // of that, for the blocks' backward
  int64_t head = 0;                // of that, logits, loss and their inputs
  int64_t update_temporaries = 0;  // at most, during the optimizer's step
  int64_t paged_states = 0;        // in memory that the driver moves between device and host
};

// Two optimizer steps, the second of which meets states and gradients of the first. Throws
// UserError for an optimizer that is not torch's.
LitgptLike like_litgpt(const models::Model& model, const recipe::Recipe& recipe,
                       const LitgptOptions& options);

}  // namespace snug::plan
