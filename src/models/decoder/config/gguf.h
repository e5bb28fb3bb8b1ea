// What reading and writing a config as GGUF metadata share; the rest is in config.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "models/decoder/config.h"

namespace snug::models::decoder {

// Behind the architecture; Ministral 3's scale of queries.
inline constexpr const char* kGgufTemperature = "attention.temperature_scale";

// "<architecture>.<name>", of a family's architecture or a file's.
std::string gguf_key(const Family& family, std::string_view name);
std::string gguf_key(const files::GgufFile& file, std::string_view name);

// config.json's rope_scaling, or null. Throws UserError if the file has a scaling that is not
// supported. `config` must have max_position_embeddings and rope_theta.
nlohmann::json gguf_rope_scaling(const files::GgufFile& file, const Family& family,
                                 const nlohmann::json& config);

// Throws UserError if GGUF metadata cannot hold this model's scaling.
void write_gguf_rope_scaling(const Config& c, files::GgufWriter& out);

}  // namespace snug::models::decoder
