// A BLIP-2 whose parts have matrices of 4096 elements and more: beside 8-bit Adam smaller ones keep
// float32 states, and the tiny models have no others.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/files.h"
#include "support/source_dir.h"
#include "support/temp_folder.h"
#include "support/tiny_training.h"

namespace snug::tests {

class WideBlip2 {
 public:
  explicit WideBlip2(const std::string& tiny) {
    nlohmann::json config = nlohmann::json::parse(
        read_file(tests::source_dir() / "tests/data/parity" / tiny / "config.json"));
    // No size has a full last block of 256 codes.
    config["vision_config"]["intermediate_size"] = 180;   // of 24
    config["qformer_config"]["intermediate_size"] = 260;  // of 16
    nlohmann::json& language = config["text_config"];
    language[language["model_type"] == "t5" ? "d_ff" : "ffn_dim"] = 154;  // of 28
    // A tied weight's two gradients are added to one sum, in an order that many ranks do not keep.
    language["tie_word_embeddings"] = false;
    write_file_atomically(folder_ / "config.json", config.dump());
  }

  // For tiny_model, which takes an absolute path as it is.
  std::string shape() const { return folder_.path().string(); }

 private:
  test::TempFolder folder_;
};

inline int64_t count_8bit_states(const TinyRun& run) {
  return std::ranges::count_if(run.engine.optimizer->states(), [](const auto& state) {
    return state.tensor.scalar_type() == at::kByte;
  });
}

}  // namespace snug::tests
