// The same recipe as another program would train it: eager PyTorch on a GPU, padding, whole logits.
// That program's model and loop run operator by operator on meta, under the ledger, so that
// autograd itself decides what is kept; nothing is fitted. Models: LitGPT's, transformers' decoders
// and BLIP-2, minGPT.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/model.h"
#include "plan/predict.h"
#include "plan/rivals/sharding.h"
#include "recipe/import/deepspeed.h"
#include "recipe/recipe.h"

namespace snug::plan::rivals {

// Whose loop: `litgpt finetune_full` or, with adapters, `finetune_lora` (Fabric: logits in float32,
// which the latter has in pieces; gradients dropped after the update, the last micro-batch's logits
// alive through the next forward), a Lightning Trainer (gradients dropped between forward and
// backward), or transformers' Trainer (gradients dropped after the update, logits before the
// backward).
enum class Loop { Fabric, Trainer, HuggingFace };

struct Options {
  Loop loop = Loop::Fabric;
  // Whether the GPU has fused attention for the type; older ones fall back to plain products. Of
  // LitGPT's model.
  bool fused_attention = true;
  int64_t batch = 1, tokens = 1;  // samples and the padded length of a micro-batch
  int64_t labels = 0;             // of a decoder's own; 0: as many as tokens
  bool padded = false;            // samples differ in length: transformers' decoders have a mask
  int64_t reserved_limit = 0;     // what the allocator may reserve; 0: no limit
  Sharding sharding = Sharding::None;
  int64_t ranks = 1;  // GPUs; the global batch is that of all of them
  // The rest is for transformers' decoders.
  bool on_cpu = false;  // a CPU's attention and dropout; what is offloaded stays in its memory
  bool liger = false;   // with Liger's kernels
  recipe::DeepSpeed deepspeed = {};  // where `sharding` is DeepSpeed's
  // A script's own loop in place of the Trainer: what the model returned stays until the next
  // step's takes its place, and torch's AdamW is not told to be fused.
  bool own_loop = false;
};

// What a script's four snapshots around a step say.
struct PhaseFigures {
  int step = 0;
  std::string name;  // before_fwd, after_fwd, after_bwd, after_opt_step
  memory::ByCategory by_category{};
  int64_t allocated = 0, peak = 0;
};

struct Figures {
  Prediction prediction;             // peak_host: of what is on the host
  std::vector<PhaseFigures> phases;  // of the first two steps
  int64_t after_forward = 0;         // live right after a forward, as Lightning scripts print it
  int64_t kept_by_blocks = 0;        // of that, for the backward of everything but the head
  int64_t head = 0;                  // of that, logits, loss and their inputs
  int64_t update_temporaries = 0;    // at most, during the optimizer's step
  int64_t paged_states = 0;          // in memory that the driver moves between device and host
};

// Whether there is a model of a library other than LitGPT: by the model_type of a Hugging Face
// config.
bool has_lightning_model(const nlohmann::json& config);
// Whether FSDP2 is planned for such a recipe.
bool takes_fully_sharded(const recipe::Recipe& recipe);
// Whether the recipe is that of its CPU offload: weights, states and the update are on the host.
bool offloads_fully_sharded(const recipe::Recipe& recipe);
// Whether DeepSpeed's ZeRO-3 is, with these settings.
bool takes_zero3(const recipe::Recipe& recipe, const recipe::DeepSpeed& settings);
// Whether what Liger's kernels make of a decoder of this model_type is known.
bool has_liger_kernels(const std::string& model_type);

// Two optimizer steps, the second of which meets states and gradients of the first. Throws
// UserError for what the libraries do not have.
Figures like_litgpt(const models::Model& model, const recipe::Recipe& recipe,
                    const Options& options);
Figures like_lightning(const nlohmann::json& config, const recipe::Recipe& recipe,
                       const Options& options);
Figures like_transformers(const models::Model& model, const recipe::Recipe& recipe,
                          const Options& options);

}  // namespace snug::plan::rivals
