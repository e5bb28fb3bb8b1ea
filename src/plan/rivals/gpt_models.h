// LitGPT's model for Llama-like configurations as plain PyTorch operators, in the order and with
// the copies of its eager code, with its LoRA layers and what Lightning's bitsandbytes plugin makes
// of linear ones; and the loss as LitGPT computes it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "models/model.h"
#include "plan/rivals/modules.h"

namespace snug::plan::rivals {

// What LitGPT's loss is computed from.
enum class LitgptLogits {
  Whole,           // in the type of products: a Lightning Trainer, whose autocast spans the loss
  WholeInFloat32,  // Fabric casts what a model returns: litgpt finetune_full
  Pieces,          // … of 128 tokens of each sample: litgpt finetune_lora
};

class LitgptModel : public Model {
 public:
  LitgptModel(const models::Model& like, const Options& options, LitgptLogits logits,
              bool fused_attention);

  void make_inputs() override;

 private:
  using Linear = Modules::Linear;
  using Norm = Modules::Norm;

  struct Block {
    size_t unit = 0;
    Norm norm_1, norm_2;
    Linear qkv, proj, fc_1, fc_2, down;
  };

  void make_embedding(int64_t vocabulary, int64_t width);
  Linear linear(int64_t in, int64_t out, bool bias, bool adapts);
  Block make_block(const models::Model& like);
  at::Tensor loss() override;
  std::vector<at::Tensor> logits();
  at::Tensor run_layers(const Block& block, const at::Tensor& input);
  at::Tensor attend(const Block& block, const at::Tensor& x);
  at::Tensor rope(const at::Tensor& x) const;
  at::Tensor mlp(const Block& block, const at::Tensor& x);
  at::Tensor adapted(const Linear& layer, const at::Tensor& x);
  at::Tensor dropped(const at::Tensor& x) const;
  at::Tensor adapter(const Linear& layer, const at::Tensor& x);
  at::Tensor qkv_adapters(const Linear& layer, const at::Tensor& x);

  LitgptLogits logits_kind_;
  bool fused_attention_;
  int64_t heads_, groups_, head_size_;
  at::Tensor* embedding_ = nullptr;
  Norm embedding_norm_;  // where weights are quantized
  Norm norm_;
  Linear head_;
  std::vector<Block> blocks_;
  at::Tensor cos_, sin_;
  at::Tensor ids_, labels_;
};

// minGPT as a Lightning script trains it: its blocks as plain PyTorch operators, attention by plain
// products, GELU written out, under autocast.
class MinGptModel : public Model {
 public:
  // `config`: Hugging Face's of a GPT-2.
  MinGptModel(const nlohmann::json& config, const Options& options);

 private:
  struct Block {
    size_t unit = 0;
    Modules::Norm ln_1, ln_2;
    Modules::Linear attn, attn_proj, fc, proj;
  };

  at::Tensor loss() override;
  at::Tensor run_layers(const Block& block, const at::Tensor& x);
  at::Tensor attend(const Block& block, const at::Tensor& x);

  int64_t heads_;
  double embedding_dropout_, attention_dropout_, residual_dropout_;
  at::Tensor *tokens_ = nullptr, *positions_ = nullptr;
  std::vector<Block> blocks_;
  Modules::Norm norm_;
  Modules::Linear head_;
  at::Tensor causal_;  // buffer of the places that a token sees, of each block
};

}  // namespace snug::plan::rivals
