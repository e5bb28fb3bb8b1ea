// A model of several parts, such as a tower for pictures beside a language model, of which snug
// trains the language model: the other parts stay in their files and are written as they are.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "files/weights/tensor_source.h"

namespace snug::models {

// How PEFT's names of the language model's layers begin within the whole model, for "model.", in
// transformers since 4.52, whatever the files call them.
inline constexpr const char* kLanguageLayers = "model.language_model.";

struct WholeModel {
  // Where the files have a weight of the language model: in a tensor of its own, or in one for all
  // experts, of this shape, of which it is part number `index` in row-major order.
  struct Place {
    std::string tensor;
    std::vector<int64_t> shape = {};
    int64_t index = 0;
  };

  std::filesystem::path folder;         // empty where only a config is known
  nlohmann::json config;                // its config.json
  std::map<std::string, Place> places;  // by the name that the language model has for the weight
  bool shares_head = false;             // the head has the embedding's weight
  int64_t num_others = 0;               // tensors of other parts
  int64_t bytes_others = 0;

  std::string model_type() const { return config.value("model_type", ""); }
  // "439 tensors (802.00 MiB)"
  std::string others() const;
  // Of a weight that the files do not have, such as a head that no longer shares the embedding's.
  std::string name_of_new(const std::string& name) const;
};

// "of a gemma3 the language model is trained; the other 439 tensors (802.00 MiB) stay as they are"
std::string words_on(const WholeModel& whole);

// Its config.json with a language model of this config.json, whose weights have this type.
nlohmann::json whole_config(const WholeModel& whole, const nlohmann::json& language,
                            const std::string& dtype);

// The other parts' tensors; those that another program quantized as the numbers they stand for.
// Throws UserError if the files are gone, or hold other tensors than when the model was opened.
std::unique_ptr<files::TensorSource> open_others(const WholeModel& whole);

}  // namespace snug::models
