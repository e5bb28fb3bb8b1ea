// transformers' decoders of the Llama kind as plain PyTorch operators, in the order and with the
// copies of their eager code: norms in float32, rotary positions, scaled_dot_product_attention with
// fewer heads of keys than of queries, the loss of whole logits in float32.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "files/checkpoint/adapters/adapter.h"
#include "models/model.h"
#include "plan/rivals/modules.h"

namespace snug::plan::rivals {

class DecoderModel : public Model {
 public:
  // The families that are written down, by their model_type.
  static const std::vector<std::string>& families();

  DecoderModel(const models::Model& like, const Options& options);

  void make_inputs() override;

 private:
  using Linear = Modules::Linear;
  using Norm = Modules::Norm;

  struct Block {
    size_t unit = 0;
    Norm norm_1, norm_2;
    Norm q_norm, k_norm;  // of each head; no weight: none
    Linear q, k, v, out, gate, up, down;
  };
  // What all blocks read besides their input.
  struct Places {
    at::Tensor cos, sin;  // (1, 1, T, D)
    at::Tensor mask;      // (B, 1, T, T), undefined where attention is causal and no more
  };

  Norm norm(int64_t width);
  Linear linear(int64_t in, int64_t out, bool bias, const std::string& name);
  Block make_block(const nlohmann::json& config, const std::string& name);
  at::Tensor loss() override;
  Places places_of(const at::Tensor& x) const;
  at::Tensor run_layers(const Block& block, const Places& places, const at::Tensor& input);
  at::Tensor attend(const Block& block, const Places& places, const at::Tensor& x);
  at::Tensor heads(const Linear& layer, const Norm& norm, const at::Tensor& x);
  at::Tensor attention(at::Tensor q, at::Tensor k, at::Tensor v, const at::Tensor& mask) const;
  at::Tensor loss_of(const at::Tensor& logits) const;

  int64_t width_, heads_, groups_, head_size_;
  bool masked_ = false;
  checkpoint::AdapterConfig adapters_;
  at::Tensor* embedding_ = nullptr;
  Norm norm_;
  Linear head_;
  std::vector<Block> blocks_;
  at::Tensor ids_, mask_, labels_;
};

}  // namespace snug::plan::rivals
