// LitGPT's LoRA checkpoints: lit_model.pth.lora with hyperparameters.yaml beside it. LitGPT adapts
// q, k and v as one matrix: lora_A has the rows of those that are enabled one below the other, and
// so has lora_B, whose rows for the others are left out. Here they become modules of their own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/adapter.h"

namespace snug::checkpoint {

// A weight of ours within a tensor of LitGPT's.
struct LitGptPart {
  std::string module;  // "model.layers.0.self_attn.k_proj"
  int64_t row_begin = 0;
  int64_t rows = 0;
  int64_t columns = 0;
};

// By LitGPT's module, "transformer.h.0.attn.qkv"; the model that knows the names passes it in.
using LitGptModules = std::map<std::string, std::vector<LitGptPart>>;

bool is_litgpt_adapter(const std::filesystem::path& directory);

// The base that hyperparameters.yaml names; empty if it does not.
std::string litgpt_base(const std::filesystem::path& directory);

// Throws UserError naming the file and the tensor or key.
Adapter read_litgpt_adapter(const std::filesystem::path& directory, const LitGptModules& modules);

}  // namespace snug::checkpoint
