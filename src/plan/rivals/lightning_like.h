// The same recipe as a Lightning Trainer would train it with a model of another library: eager
// PyTorch on a GPU, padding, whole logits. The model's operators run on meta under the ledger, so
// that autograd itself decides what is kept; nothing is fitted. Models: transformers' BLIP-2 and
// minGPT.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "plan/predict.h"
#include "plan/rivals/torch_modules.h"
#include "recipe/recipe.h"

namespace snug::plan {

struct LightningOptions {
  int64_t batch = 1, tokens = 1;  // samples and the padded length of a micro-batch
  int64_t labels = 0;             // of a decoder's own; 0: as many as tokens
  int64_t reserved_limit = 0;     // what the allocator may reserve; 0: no limit
  TorchSharding sharding = TorchSharding::None;
  int64_t ranks = 1;  // GPUs; the global batch is that of all of them
};

// What a script's four snapshots around a step say.
struct LightningPhase {
  int step = 0;
  std::string name;  // before_fwd, after_fwd, after_bwd, after_opt_step
  memory::ByCategory by_category{};
  int64_t allocated = 0, peak = 0;
};

struct LightningLike {
  Prediction prediction;               // peak_host: of states on the host
  std::vector<LightningPhase> phases;  // of the first two steps
  int64_t after_forward = 0;
  int64_t kept_by_blocks = 0;      // of that, for the backward of everything but the head
  int64_t head = 0;                // of that, logits, loss and their inputs
  int64_t update_temporaries = 0;  // at most, during the optimizer's step
  // FSDP without its limiter: what the allocator may get of all that the host gathers ahead of the
  // GPU; 0: there is a limiter. prediction.peak_reserved has a few units at a time.
  int64_t reserved_ahead = 0;
};

// Whether there is such a model: by the model_type of a Hugging Face config.
bool has_lightning_model(const nlohmann::json& config);

// Two optimizer steps, the second of which meets states and gradients of the first. Throws
// UserError for what the libraries do not have.
LightningLike like_lightning(const nlohmann::json& config, const recipe::Recipe& recipe,
                             const LightningOptions& options);

}  // namespace snug::plan
