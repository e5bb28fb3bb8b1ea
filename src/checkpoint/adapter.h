// A low-rank adapter as it lies on disk, whoever wrote it: its configuration, in the words of
// PEFT's adapter_config.json, and per module of the base model the matrices that are added to its
// weight. Modules carry Hugging Face's names, "model.layers.0.self_attn.q_proj".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace snug::checkpoint {

// Modules named by a list, whose words are a whole name or its end after a dot, or by one regular
// expression for whole names.
struct ModuleChoice {
  std::vector<std::string> names;
  std::string pattern;  // not empty: instead of the list

  bool empty() const { return names.empty() && pattern.empty(); }
  bool operator==(const ModuleChoice&) const = default;
};

struct AdapterConfig {
  int64_t r = 8;
  double lora_alpha = 8;
  double lora_dropout = 0;
  ModuleChoice target_modules;               // empty: those that the file holds
  ModuleChoice exclude_modules;              // of the former
  std::vector<int64_t> layers_to_transform;  // empty: all. Of a list of target_modules
  std::vector<std::string> layers_pattern;   // what stands before a layer's number; empty: any
  // Other ranks and alphas for the modules whose name ends in a match; the first one counts.
  std::vector<std::pair<std::string, int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
  bool use_rslora = false;  // scaling alpha / sqrt(r) instead of alpha / r
  bool use_dora = false;
  bool fan_in_fan_out = false;  // the adapted layers' weights are (in, out) in the base's files
  std::vector<std::string> modules_to_save;  // of the base, trained whole beside the adapter
  std::string init_lora_weights = "true";    // "true", "false" or a method's name
  std::string base_model_name_or_path;       // a folder, a GGUF file or a name on the hub

  bool operator==(const AdapterConfig&) const = default;
};

// y = W x + scaling * B A x. With DoRA each row of (W + scaling * B A) is brought to the length
// that `magnitude` has for it.
struct ModuleAdapter {
  at::Tensor a;          // (r, in)
  at::Tensor b;          // (out, r)
  at::Tensor magnitude;  // (out); undefined without DoRA
  double scaling = 1;

  int64_t rank() const { return a.size(0); }
  int64_t in_features() const { return a.size(1); }
  int64_t out_features() const { return b.size(0); }
};

struct Adapter {
  AdapterConfig config;
  std::map<std::string, ModuleAdapter> modules;  // by module
  // Weights of the base that lie in the file too and stand for the base's own: those that trained
  // beside the adapter, and the head's when the head is adapted, which PEFT stores. By parameter,
  // "lm_head.weight"; as Hugging Face shapes them where they come from a file.
  std::map<std::string, at::Tensor> base_weights;
};

// Whether the configuration adapts this module. Throws UserError for a pattern that is no regular
// expression.
bool adapts(const AdapterConfig& config, const std::string& module);
int64_t rank_of(const AdapterConfig& config, const std::string& module);
// What B A is multiplied by in this module.
double scaling_of(const AdapterConfig& config, const std::string& module);

}  // namespace snug::checkpoint
