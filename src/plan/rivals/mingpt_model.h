// minGPT as a Lightning script trains it: its blocks as plain PyTorch operators, attention by plain
// products, GELU written out, under autocast.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "plan/rivals/model.h"

namespace snug::plan::rivals {

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
