// Folders of weights that another program has quantized: the tensors of each packed matrix become
// one, named as in the folder of floating-point weights and read like it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "files/weights/tensor_source.h"

namespace snug::files {

// Joins what bitsandbytes, GPTQ, AWQ, compressed-tensors, ModelOpt, FBGEMM and the block-wise FP8
// of DeepSeek and Qwen write, and gpt-oss' experts in MXFP4 (packed/layouts.h). `config`: the
// model's config.json. Changes nothing where there are none of these. Throws UserError for parts
// that do not fit each other.
void join_packed_weights(TensorSource& tensors, const nlohmann::json& config);

}  // namespace snug::files
