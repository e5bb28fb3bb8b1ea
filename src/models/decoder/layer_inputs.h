// Embeddings by layer (Google 2025, "Gemma 3n"; Gemma 4's E2B and E4B): besides the hidden states,
// each block gets a short vector of every token, from a table of its own and from the token's
// embedding. One unit makes them for all blocks; a block takes its own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/nn/functions.h"
#include "core/nn/linear.h"
#include "core/nn/unit.h"
#include "models/decoder/config.h"

namespace snug::models::decoder {

// Shapes: L blocks, P features for each, V' rows of the table; others as in units.h.
class LayerInputs final : public nn::Unit {
 public:
  explicit LayerInputs(const Config& config);
  // Adds each block's (c, P) to the state.
  nn::State forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;
  std::vector<nn::Parameter*> parameters() override;
  std::vector<nn::Linear*> linears() override { return {&projection_}; }

 private:
  const Config& config_;
  nn::Parameter table_;    // (V', L P)
  nn::Linear projection_;  // (L P, D)
  nn::RmsNorm norm_;       // (P)
};

// What a block does with its own, at its end.
class LayerInput {
 public:
  // `block` begins its weights' names: "model.layers.0."
  LayerInput(const Config& config, int64_t layer, const std::string& block);
  // hidden (c, D) with what the block's input gives added; takes the latter out of the state.
  at::Tensor forward(const at::Tensor& hidden, nn::State& state, const nn::Batch& batch,
                     const nn::Pass& pass) const;
  void list(std::vector<nn::Parameter*>& parameters);
  void list(std::vector<nn::Linear*>& linears);

 private:
  const Config& config_;
  int64_t layer_;
  nn::Linear gate_;        // (P, D)
  nn::Linear projection_;  // (D, P)
  nn::RmsNorm norm_;       // (D)
};

}  // namespace snug::models::decoder
