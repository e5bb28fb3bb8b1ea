// What a vision transformer computes, and how its pictures' pixels are normalised. Names as in
// config.json and preprocessor_config.json.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "core/ops/activation.h"
#include "models/config_fields.h"

namespace snug::models::vision {

// How vision models differ besides their sizes.
struct Form {
  const char* prefix = "";     // of its weights' names
  bool class_token = false;    // before the patches
  bool fused_qkv = false;      // one layer "qkv"; else "q_proj", "k_proj" and "v_proj"
  const char* output = "";     // attention's last layer
  const char* positions = "";  // the table of positions
};

struct Config {
  Form form;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t image_size = 0;
  int64_t patch_size = 0;
  std::string hidden_act;
  ops::Activation activation = ops::Activation::Gelu;
  double layer_norm_eps = 1e-6;
  double attention_dropout = 0;
  bool qkv_bias = true;
  double initializer_range = 0.02;

  int64_t patches_across() const { return image_size / patch_size; }
  int64_t num_patches() const { return patches_across() * patches_across(); }
  int64_t num_positions() const { return num_patches() + (form.class_token ? 1 : 0); }
  int64_t head_dim() const { return hidden_size / num_attention_heads; }
};

// Normalisation of pixels; by default CLIP's (Radford et al. 2021).
struct Pixels {
  std::array<float, 3> mean{0.48145466F, 0.4578275F, 0.40821073F};
  std::array<float, 3> std{0.26862954F, 0.26130258F, 0.27577711F};
  // How a model cuts pictures into tiles, as other files say it too. data/pictures reads the same
  // keys when it prepares pictures.
  int64_t longest_edge = 0;  // size.longest_edge; 0: the family's
  bool cuts = true;          // do_image_splitting
};

// All throw UserError naming the source and the field that is missing or out of range.

// A vision_config, laid over the family's defaults.
Config read_config(const ConfigFields& fields, Config defaults);
// Whether hidden_size is whole heads of a width that the attention kernels have.
void check_heads(const ConfigFields& fields, int64_t hidden_size, int64_t heads);
// A config's initializer_range, or `fallback` where it is none to start training from: published
// configs give 1e-10 for vision models, whose weights are always loaded.
double deviation(const ConfigFields& fields, double fallback);
// What a preprocessor_config.json says of it.
Pixels read_pixels(const nlohmann::json& json, const std::string& where, Pixels defaults);

}  // namespace snug::models::vision
