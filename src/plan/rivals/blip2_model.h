// transformers' Blip2ForConditionalGeneration in training, as plain PyTorch operators in the order
// and with the copies of its eager code (transformers 5): vision encoder, Q-Former, projection and
// OPT or T5, attention through scaled_dot_product_attention.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "plan/rivals/modules.h"

namespace snug::plan::rivals {

class Blip2Model : public Model {
 public:
  // `config`: Hugging Face's. Samples are padded within a batch, so that the language model gets a
  // mask.
  Blip2Model(const nlohmann::json& config, const Options& options);

 private:
  using Linear = Modules::Linear;
  using Norm = Modules::Norm;

  struct VisionLayer {
    size_t unit = 0;
    Norm norm_1, norm_2;
    Linear qkv, projection, fc_1, fc_2;
  };
  struct QFormerAttention {
    Linear query, key, value, dense;
    Norm norm;
  };
  struct QFormerLayer {
    size_t unit = 0;
    bool has_cross = false;
    QFormerAttention self, cross;
    Linear up, down;
    Norm norm;
  };
  struct OptLayer {
    size_t unit = 0;
    Norm norm_1, norm_2;
    Linear q, k, v, out, fc_1, fc_2;
  };
  struct T5Attention {
    Norm norm;
    Linear q, k, v, o;
  };
  struct T5Block {
    size_t unit = 0;
    T5Attention self, cross;  // the encoder's have no cross
    Norm norm;
    Linear gate, up, down;  // gate: of gated ones
  };

  void make_vision(const nlohmann::json& config);
  void make_qformer(const nlohmann::json& config);
  void make_opt(const nlohmann::json& config);
  void make_t5(const nlohmann::json& config);
  QFormerAttention make_qformer_attention(int64_t width, int64_t keys);
  T5Attention make_t5_attention(int64_t width, int64_t inner);
  T5Block make_t5_block(const nlohmann::json& config, bool decoder);

  at::Tensor loss() override;
  at::Tensor see();                             // (S, places, width)
  at::Tensor ask(const at::Tensor& seen);       // (S, queries, language width)
  at::Tensor embed(const at::Tensor& picture);  // (B, T, language width)
  at::Tensor opt_loss(at::Tensor x);
  at::Tensor t5_loss(at::Tensor x);
  at::Tensor vision_layer(const VisionLayer& layer, const at::Tensor& x);
  at::Tensor qformer_attention(const QFormerAttention& attention, const at::Tensor& x,
                               const at::Tensor& from);
  at::Tensor qformer_layer(const QFormerLayer& layer, const at::Tensor& x, const at::Tensor& seen);
  at::Tensor opt_layer(const OptLayer& layer, const at::Tensor& x, const at::Tensor& mask);
  at::Tensor t5_attention(const T5Attention& attention, const at::Tensor& x, const at::Tensor& from,
                          const at::Tensor& mask, const at::Tensor& bias);
  at::Tensor t5_activation(const at::Tensor& x) const;
  at::Tensor t5_feed_forward(const T5Block& block, const at::Tensor& x);
  at::Tensor t5_stack(const std::vector<T5Block>& blocks, const char* name, at::Tensor x,
                      const at::Tensor& source, const at::Tensor& mask, const at::Tensor& table);
  void ask_for_gradient(const at::Tensor& x) const;
  // (B, 1, T, U) of places that may be seen.
  at::Tensor new_mask(int64_t queries, int64_t keys) const;

  int64_t image_ = 0, vision_heads_ = 0, qformer_heads_ = 0, heads_ = 0;
  double qformer_dropout_ = 0, dropout_ = 0;
  bool is_t5_ = false, gated_ = false;
  std::string activation_;
  at::Tensor *class_ = nullptr, *places_ = nullptr, *queries_ = nullptr;
  at::Tensor *patch_weight_ = nullptr, *patch_bias_ = nullptr;
  at::Tensor *tokens_ = nullptr, *positions_ = nullptr;
  at::Tensor *encoder_bias_ = nullptr, *decoder_bias_ = nullptr;
  std::vector<VisionLayer> vision_;
  std::vector<QFormerLayer> qformer_;
  std::vector<OptLayer> opt_;
  std::vector<T5Block> encoder_, decoder_;
  Norm vision_norm_, qformer_norm_, final_norm_, encoder_norm_, decoder_norm_;
  Linear projection_, head_;
};

}  // namespace snug::plan::rivals
