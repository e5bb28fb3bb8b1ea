// LitGPT's model for Llama-like configurations as plain PyTorch operators, in the order and with
// the copies of its eager code, with its LoRA layers and what Lightning's bitsandbytes plugin makes
// of linear ones. Only shapes matter: it runs on meta.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/nn/precision.h"
#include "models/model.h"
#include "plan/rivals/litgpt_devices.h"
#include "recipe/recipe.h"

namespace snug::plan {

class LitgptModel {
 public:
  // Of the recipe: precision, adapters and quantization. Throws UserError for those that LitGPT
  // does not have. With FSDP, one of `ranks`.
  LitgptModel(const models::Model& like, const recipe::Recipe& recipe, int64_t max_tokens,
              bool fused_attention, LitgptSharding sharding, int64_t ranks);

  // ids (B, T) -> logits (B, T, V), in the type of the products; in pieces of `head_chunk` tokens
  // of each sample where that is not 0.
  std::vector<at::Tensor> forward(const at::Tensor& ids, int64_t head_chunk);
  // Those that the optimizer knows and trains; with FSDP this rank's parts.
  const std::vector<at::Tensor>& weights() const { return weights_; }
  // Autocast keeps its casts of weights until the forward is over.
  void drop_weight_casts();

 private:
  // Of the linear layers that can have adapters. Qkv is one layer with up to three of them.
  struct Adapters {
    std::vector<int64_t> outputs;  // rows of B that belong to each adapted part
    at::Tensor a, b;               // (parts * r, in), (sum of outputs, r)
  };
  struct Linear {
    int64_t in = 0, out = 0;
    at::Tensor weight, bias;    // the weight of 4-bit codes where `absmax` is defined
    at::Tensor absmax, scales;  // one a block of 64; of blocks of those where they are quantized
    Adapters adapters;
  };
  struct Block {
    at::Tensor norm_1, norm_2;
    Linear qkv, proj, fc_1, fc_2, down;
  };
  struct Shape {
    int64_t layers, width, heads, groups, head_size, intermediate, vocabulary;
    bool qkv_bias, mlp_bias;
  };
  static Shape shape_of(const models::Model& like);

  std::vector<at::Tensor*> slots_of(Block& block);
  void shard(int64_t ranks);
  at::Tensor run_block(size_t i, const at::Tensor& x);
  at::Tensor run_sharded_block(size_t i, const at::Tensor& x);
  at::Tensor make_weight(std::vector<int64_t> sizes, bool trained);
  Linear make_linear(int64_t in, int64_t out, bool bias, std::vector<int64_t> adapted);
  void make_embedding();
  at::Tensor embed(const at::Tensor& ids);
  at::Tensor cast(const at::Tensor& weight);
  at::Tensor linear(const at::Tensor& x, const Linear& layer);
  at::Tensor product(const at::Tensor& x, const Linear& layer);
  at::Tensor drop(const at::Tensor& x) const;
  at::Tensor adapt(const at::Tensor& x, const Linear& layer);
  at::Tensor adapt_qkv(const at::Tensor& x, const Linear& layer);
  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight) const;
  at::Tensor rope(const at::Tensor& x) const;
  at::Tensor attend(const Block& block, const at::Tensor& x);
  at::Tensor mlp(const Block& block, const at::Tensor& x);

  Shape shape_;
  nn::Precision precision_;
  recipe::LoraOptions lora_;
  std::string quantize_;  // empty: none
  bool fused_attention_;
  LitgptSharding sharding_;
  at::TensorOptions options_;
  std::vector<at::Tensor> weights_;
  std::vector<std::pair<at::Tensor, at::Tensor>> casts_;  // weight, its 16-bit copy
  at::Tensor embedding_, norm_;
  at::Tensor old_embedding_, embedding_scale_, embedding_shift_;  // quantized
  Linear head_;
  std::vector<Block> blocks_;
  at::Tensor cos_, sin_;
  // What FSDP wraps: all, or everything but blocks and then each block.
  std::vector<std::unique_ptr<FlatWeights>> flats_;
};

}  // namespace snug::plan
