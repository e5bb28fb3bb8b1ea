// Steps of read_config, each with a part of config.json. `where`: the config's path for errors.
// They complete what they read in c.json, as it is written again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "models/decoder/config.h"

namespace snug::models::decoder {

inline constexpr int64_t kLargestMlp = int64_t{1} << 22;
inline constexpr int64_t kLargestHead = 512;

// Mixers other than attention as others know it, where the family has them. Before read_layers.
void read_latent_attention(Config& c, const std::string& where);
void read_convolutions(Config& c, const std::string& where);
void read_delta_rule(Config& c, const std::string& where);
void read_mamba(Config& c, const std::string& where);
// What each block is: its mixer, heads, window and MLP.
void read_layers(Config& c, const std::string& where);
// Which blocks have experts, how many, and how they are chosen.
void read_experts(Config& c, const std::string& where);

}  // namespace snug::models::decoder
