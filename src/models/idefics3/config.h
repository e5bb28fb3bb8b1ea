// Idefics3 (Laurençon et al. 2024) and SmolVLM (Marafioti et al. 2025), the same network on
// pictures: a SigLIP vision transformer, whose features of several neighbouring patches become one
// row by one linear layer, and a Llama that reads these rows as tokens. Names as in config.json.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "models/decoder/config.h"
#include "models/vision/config.h"

namespace snug::models::idefics3 {

// How the two differ.
struct Family {
  const char* model_type;
  const char* class_name;  // in transformers
};
inline constexpr Family kFamilies[] = {{"idefics3", "Idefics3ForConditionalGeneration"},
                                       {"smolvlm", "SmolVLMForConditionalGeneration"}};

struct Config {
  Family family;
  vision::Config vision;
  decoder::Config text;
  int64_t scale_factor = 2;  // patches a side that become one row
  int32_t image_token_id = 128257;
  // In GGUF files the MLP's second layer is called ffn_up: llama.cpp's first converter wrote it so,
  // and its reader takes a file for such a one whose layer of that name is as wide as the model.
  bool gguf_mlp_exchanged = false;
  nlohmann::json root;  // the whole file, to be written back

  // Rows of a picture across, and in all.
  int64_t rows_across() const { return vision.patches_across() / scale_factor; }
  int64_t rows_per_picture() const { return rows_across() * rows_across(); }
  int64_t row_features() const { return vision.hidden_size * scale_factor * scale_factor; }
};

// Throws UserError naming the source and the field that is missing or out of range.
Config from_hugging_face(const nlohmann::json& json, const std::string& where);

}  // namespace snug::models::idefics3
