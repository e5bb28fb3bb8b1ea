// Adapters of experts whose weights are one tensor in the base's files (gpt-oss), as PEFT keeps
// them for a bare parameter (target_parameters): one pair of matrices for all experts. In our
// adapters each expert's layer is a module of its own, "model.layers.0.mlp.experts.3.down_proj",
// and the parameter is its name without the number.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "files/checkpoint/adapters/adapter.h"

namespace snug::checkpoint {

// The stacks by PEFT's name of the module that adapts them: of those of the same experts the last
// has their name, and what comes before is inside: "<experts>.base_layer". `stacks`: those that are
// adapted, in the order of transformers' parameters.
std::map<std::string, ExpertStack> modules_of_stacks(const std::vector<ExpertStack>& stacks);

// All experts' matrices as PEFT's: a (experts * r, in), b (out, r * experts), in whose columns the
// expert counts fastest. Tensors may be on meta.
ModuleAdapter join_experts(const std::vector<ModuleAdapter>& experts, bool paired);
// The inverse, for `count` experts. Throws UserError, beginning with `where`, if the rank does not
// divide.
std::vector<ModuleAdapter> split_experts(const ModuleAdapter& all, int64_t count, bool paired,
                                         const std::string& where);

}  // namespace snug::checkpoint
