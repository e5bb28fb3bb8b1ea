// The rotary embedding of config.json, one of the steps of read_config: each family's keys and each
// version's forms meet here, so that what follows reads one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "models/decoder/config.h"

namespace snug::models::decoder {

// The types of layers in config.json's layer_types and rope_parameters.
inline constexpr const char* kSliding = "sliding_attention";
inline constexpr const char* kFull = "full_attention";
inline constexpr const char* kConvolution = "conv";
inline constexpr const char* kDeltaRule = "linear_attention";
inline constexpr const char* kMamba = "mamba";

// transformers 5 writes rope_parameters, for all layers or for each type; earlier versions write
// rope_theta, rope_scaling and others beside them. Every version reads the latter, which this
// leaves in c.json. `file` is config.json as it stands, `where` its path for errors.
void flatten_rope(Config& c, const nlohmann::json& file, const std::string& where);

// Writes the rotary embedding of a flattened config as rope_parameters by layer alone, for a family
// that has no older form.
void write_rope_by_layer(nlohmann::json& config);

// The base and scaling that a flattened config names.
kernels::cpu::RopeScaling rope_of(const nlohmann::json& config, const std::string& where);

}  // namespace snug::models::decoder
