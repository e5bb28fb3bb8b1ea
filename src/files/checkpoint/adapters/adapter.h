// A low-rank adapter as read from or written to disk, in any format: its configuration, with the
// keys of PEFT's adapter_config.json, and for each module of the base model the matrices added to
// its weight. Modules have Hugging Face's names, "model.layers.0.self_attn.q_proj".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "files/weights/tensor_source.h"

namespace snug::checkpoint {

// A choice of modules: a list of whole names or of endings after a dot, or one regular expression
// that matches whole names.
struct ModuleChoice {
  std::vector<std::string> names;
  std::string pattern;  // if not empty, used instead of the list

  bool empty() const { return names.empty() && pattern.empty(); }
  bool operator==(const ModuleChoice&) const = default;
};

// The task_type of models that score documents.
inline constexpr const char* kScoresDocuments = "SEQ_CLS";

struct AdapterConfig {
  int64_t r = 8;
  double lora_alpha = 8;
  double lora_dropout = 0;
  ModuleChoice target_modules;   // empty: all modules in the file
  ModuleChoice exclude_modules;  // excluded from target_modules
  // Stacked experts that are adapted too: their parameters' whole names or endings after a dot.
  std::vector<std::string> target_parameters;
  std::vector<int64_t> layers_to_transform;  // empty: all. Only with a list of target_modules
  std::vector<std::string> layers_pattern;   // name before a layer's number; empty: any
  // Other ranks and alphas for modules whose name ends in a match of the pattern; the first match
  // counts.
  std::vector<std::pair<std::string, int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
  bool use_rslora = false;  // scaling alpha / sqrt(r) instead of alpha / r
  bool use_dora = false;
  bool fan_in_fan_out = false;  // the adapted layers' weights are (in, out) in the base's files
  std::vector<std::string> modules_to_save;  // base modules that train in full beside the adapter
  std::string init_lora_weights = "true";    // "true", "false" or a method's name
  std::string base_model_name_or_path;       // a folder, a GGUF file or a name on the hub
  std::string task_type = "CAUSAL_LM";       // or kScoresDocuments
  // Of a language model within a model of several parts: PEFT's names begin with this where ours
  // begin with "model.". Choices of modules may be given in either form. Empty: they are the same.
  std::string within;

  bool operator==(const AdapterConfig&) const = default;
};

// y = W x + scaling * B A x. With DoRA each row of (W + scaling * B A) is rescaled to the norm in
// `magnitude`.
struct ModuleAdapter {
  at::Tensor a;          // (r, in)
  at::Tensor b;          // (out, r)
  at::Tensor magnitude;  // (out); undefined without DoRA
  double scaling = 1;

  int64_t rank() const { return a.size(0); }
  int64_t in_features() const { return a.size(1); }
  int64_t out_features() const { return b.size(0); }
};

// The layers of one kind of a block's experts, whose weights the base's files have in one tensor:
// adapters/expert_stacks.h.
struct ExpertStack {
  std::string parameter;             // "model.layers.0.mlp.experts.down_proj"
  std::vector<std::string> modules;  // by expert
  bool paired = false;  // PEFT's outputs 2 i and 2 i + 1 are ours i and (outputs / 2 + i)
};

struct Adapter {
  AdapterConfig config;
  std::map<std::string, ModuleAdapter> modules;  // by module name
  std::vector<ExpertStack> stacks;               // of which all modules are among these
  // Base weights that the file also contains and that replace the base's own: those trained beside
  // the adapter, and the head's if it is adapted, which PEFT stores. By parameter name,
  // "lm_head.weight"; when read from a file, in Hugging Face's shapes.
  std::map<std::string, at::Tensor> base_weights;
};

// PEFT's name of a module or parameter, and ours.
std::string peft_name(const AdapterConfig& config, const std::string& own);
std::string own_name(const AdapterConfig& config, const std::string& name);

// Whether the configuration adapts this module. Throws UserError for an invalid regular expression.
bool adapts(const AdapterConfig& config, const std::string& module);
int64_t rank_of(const AdapterConfig& config, const std::string& module);
// The scaling of B A in this module.
double scaling_of(const AdapterConfig& config, const std::string& module);

// Reads a tensor in its stored type (float64 as float32). Throws UserError for integer types and
// for values that are not finite.
at::Tensor read_adapter_tensor(const files::TensorSource& source, const files::TensorInfo& info);

// Sets each module's scaling. Throws UserError, beginning with `where`, for a missing matrix, wrong
// shapes, a rank other than the configuration's, or a module that the configuration does not name.
void check_and_scale(Adapter& adapter, const std::string& where);

}  // namespace snug::checkpoint
