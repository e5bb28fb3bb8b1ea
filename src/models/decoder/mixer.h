// The part of a block in which tokens read others: attention, a short convolution, the gated delta
// rule or Mamba 2.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "core/nn/linear.h"
#include "core/nn/unit.h"
#include "models/decoder/config.h"
#include "models/decoder/rope.h"

namespace snug::models::decoder {

class Mixer {
 public:
  virtual ~Mixer() = default;
  // The normed hidden states x (c, D) -> what is added to them (c, D). `state`: the block's output,
  // where layers leave keys and values for later ones and find them.
  virtual at::Tensor forward(const at::Tensor& x, nn::State& state, const nn::Batch& batch,
                             const nn::Pass& pass) const = 0;
  virtual void list(std::vector<nn::Parameter*>& parameters) = 0;
  virtual void list(std::vector<nn::Linear*>& linears) = 0;
};

// Of block number `layer`, whose weights' names begin with `name`: "model.layers.0.".
// `rope`: filled by Model::prepare; null: the layer does not rotate.
std::unique_ptr<Mixer> make_attention(const Config& config, int64_t layer, const std::string& name,
                                      const Rope* rope);
std::unique_ptr<Mixer> make_latent_attention(const Config& config, int64_t layer,
                                             const std::string& name, const Rope* rope);
std::unique_ptr<Mixer> make_short_convolution(const Config& config, int64_t layer,
                                              const std::string& name);
std::unique_ptr<Mixer> make_delta_rule(const Config& config, int64_t layer,
                                       const std::string& name);
std::unique_ptr<Mixer> make_mamba(const Config& config, int64_t layer, const std::string& name);

}  // namespace snug::models::decoder
