// LitGPT's LoRA checkpoints: lit_model.pth.lora with hyperparameters.yaml beside it. LitGPT adapts
// q, k and v as one matrix: lora_A and lora_B stack the rows of those that are adapted and omit the
// others. Here each becomes a module of its own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "files/checkpoint/adapters/adapter.h"

namespace snug::checkpoint {

// The part of a LitGPT tensor that is one of our weights.
struct LitGptPart {
  std::string module;  // "model.layers.0.self_attn.k_proj"
  int64_t row_begin = 0;
  int64_t rows = 0;
  int64_t columns = 0;
};

// By LitGPT's module name, "transformer.h.0.attn.qkv"; provided by the model, which knows the
// names.
using LitGptModules = std::map<std::string, std::vector<LitGptPart>>;

bool is_litgpt_adapter(const std::filesystem::path& directory);

// The base model in hyperparameters.yaml; empty if there is none.
std::string litgpt_base(const std::filesystem::path& directory);

// Throws UserError naming the file and the tensor or key.
Adapter read_litgpt_adapter(const std::filesystem::path& directory, const LitGptModules& modules);

}  // namespace snug::checkpoint
