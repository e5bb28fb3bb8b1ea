// LitGPT's model for Llama-like configurations as plain PyTorch operators, in the order and with
// the copies of its eager code. Only shapes matter: it runs on meta.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "models/model.h"
#include "nn/precision.h"

namespace snug::plan {

class LitgptModel {
 public:
  LitgptModel(const models::Model& like, const nn::Precision& precision, int64_t max_tokens,
              bool fused_attention);

  // ids (B, T) -> logits (B, T, V), in the type of the products.
  at::Tensor forward(const at::Tensor& ids);
  const std::vector<at::Tensor>& weights() const { return weights_; }
  // Autocast keeps its casts of weights until the forward is over.
  void drop_weight_casts();

 private:
  struct Linear {
    at::Tensor weight, bias;
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

  at::Tensor make_weight(std::vector<int64_t> sizes);
  Linear make_linear(int64_t in, int64_t out, bool bias);
  at::Tensor cast(const at::Tensor& weight);
  at::Tensor linear(const at::Tensor& x, const Linear& layer);
  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight) const;
  at::Tensor rope(const at::Tensor& x) const;
  at::Tensor attend(const Block& block, const at::Tensor& x);
  at::Tensor mlp(const Block& block, const at::Tensor& x);

  Shape shape_;
  nn::Precision precision_;
  bool fused_attention_;
  at::TensorOptions options_;
  std::vector<at::Tensor> weights_;
  std::vector<std::pair<at::Tensor, at::Tensor>> casts_;  // weight, its 16-bit copy
  at::Tensor embedding_, norm_;
  Linear head_;
  std::vector<Block> blocks_;
  at::Tensor cos_, sin_;
};

}  // namespace snug::plan
