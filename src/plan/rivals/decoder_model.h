// transformers' decoders of the Llama kind as plain PyTorch operators, in the order and with the
// copies of their eager code: norms in float32, rotary positions, scaled_dot_product_attention with
// fewer heads of keys than of queries, the loss of whole logits in float32. What distinguishes a
// family is what its decoder::Config says.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "files/checkpoint/adapters/adapter.h"
#include "models/decoder/config.h"
#include "models/model.h"
#include "plan/rivals/experts.h"
#include "plan/rivals/modules.h"

namespace snug::plan::rivals {

class DecoderModel : public Model {
 public:
  // The families that are written down, by their model_type.
  static const std::vector<std::string>& families();

  // Liger has none for GPT-NeoX and StableLM, and other ones for Granite, Phi-3 and experts.
  static bool is_known_to_liger(const std::string& family);

  DecoderModel(const models::Model& like, const Options& options);

  void make_inputs() override;

 private:
  using Linear = Modules::Linear;
  using Norm = Modules::Norm;

  struct Block {
    size_t unit = 0;
    models::decoder::Layer layer;
    Norm before_attention, after_attention, before_mlp, after_mlp;  // no weight: none
    Norm q_norm, k_norm;
    Linear q, k, v, out;             // fused: q is all three
    Linear gate, up, down;           // fused: up is gate and up
    std::optional<Experts> experts;  // in place of these
  };
  // What all blocks of a kind read besides their input.
  struct Places {
    at::Tensor cos, sin;  // (1, 1, T, D) of what rotates
    at::Tensor mask;      // (B, 1, T, T), undefined where attention is causal and no more
  };

  enum class NormOf { Input, Result, Head };
  Norm norm(int64_t width, NormOf what);
  Linear linear(int64_t in, int64_t out, bool bias, const std::string& name);
  Block make_block(int64_t index);
  void make_attention(Block& block, const std::string& name);
  void make_mlp(Block& block, const std::string& name);
  void make_head();

  at::Tensor loss() override;
  at::Tensor embedded();
  at::Tensor logits(const at::Tensor& x);
  at::Tensor loss_by_liger(const at::Tensor& x);
  at::Tensor loss_of(const at::Tensor& logits) const;
  at::Tensor shifted_labels() const;
  at::Tensor run_all_blocks(at::Tensor x);
  Places places_of(const at::Tensor& x) const;
  at::Tensor mask_of(const at::Tensor& x, bool has_window) const;
  at::Tensor run_layers(const Block& block, const Places& places, const at::Tensor& input);
  at::Tensor normed(const Norm& norm, const at::Tensor& x);
  at::Tensor added(const at::Tensor& x) const;
  at::Tensor attend(const Block& block, const Places& places, const at::Tensor& x);
  at::Tensor mlp(const Block& block, const at::Tensor& x);
  std::vector<at::Tensor> heads(const Block& block, const at::Tensor& x);
  at::Tensor in_places(const at::Tensor& x, const Places& places) const;
  at::Tensor attention(at::Tensor q, at::Tensor k, at::Tensor v, const at::Tensor& mask) const;
  at::Tensor eager_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& mask) const;
  at::Tensor activated(const at::Tensor& x) const;

  models::decoder::Config config_;
  bool liger_;                                 // its kernels
  bool is_eager_;                              // attention without a fused operator
  bool rotates_in_float_;                      // OLMo's cosines stay in float32
  bool is_scaled_;                             // Granite multiplies though it may be by 1
  size_t embedding_unit_ = 0, head_unit_ = 0;  // of FSDP2; one if they share a weight
  checkpoint::AdapterConfig adapters_;
  at::Tensor* embedding_ = nullptr;
  Norm norm_;
  Linear head_;
  std::vector<Block> blocks_;
  at::Tensor ids_, mask_, labels_;
};

}  // namespace snug::plan::rivals
