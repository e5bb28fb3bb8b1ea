// The Q-Former as units, and the projection of its output to the language model. State: "queries"
// (c, D) and the picture features "vision" (S·P, V), with S pictures, Q queries, P positions, D
// hidden_size, V the vision model's hidden size; c of the S·Q rows as
// core/nn/functions.h says.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "core/nn/attention.h"
#include "core/nn/functions.h"
#include "models/blip2/config.h"
#include "models/vision/vision.h"

namespace snug::models::blip2 {

class QFormerEmbeddings final : public vision::PictureUnit {
 public:
  explicit QFormerEmbeddings(const Config& config);
  std::vector<nn::Parameter*> parameters() override;
  // The parameter's shape in files; empty: the same as here.
  std::vector<int64_t> file_shape(const nn::Parameter& parameter) const;

 private:
  nn::State look(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;

  const Config& config_;
  nn::Parameter queries_;  // (Q, D)
  nn::LayerNorm norm_;
};

// norm(x + dropout(dense(attention(x)))): post-norm, as in BERT.
class QFormerAttention {
 public:
  // `source_size`: width of the keys' source, which may differ from D.
  QFormerAttention(const std::string& name, const QFormerConfig& config, int64_t source_size);

  // Self-attention: x (c, D of num_rows) -> (c, D)
  at::Tensor to_themselves(const at::Tensor& x, const nn::Packed& queries, int64_t num_rows,
                           const nn::Pass& pass) const;
  // Cross-attention to the whole source (S·n, source_size).
  at::Tensor to_source(const at::Tensor& x, const nn::Packed& queries, int64_t num_rows,
                       const at::Tensor& source, const nn::Packed& keys,
                       const nn::Pass& pass) const;
  void list(std::vector<nn::Parameter*>& parameters);
  std::vector<nn::Linear*> linears() { return {&query_, &key_, &value_, &dense_}; }

 private:
  at::Tensor answer(const at::Tensor& x, const std::vector<at::Tensor>& qkv,
                    const nn::Packed& queries, const nn::Packed& keys, const nn::Pass& pass) const;

  const QFormerConfig& config_;
  nn::Linear query_, key_, value_;
  nn::Linear dense_;
  nn::LayerNorm norm_;
};

class QFormerBlock final : public vision::PictureUnit {
 public:
  QFormerBlock(const Config& config, int64_t layer);
  std::vector<nn::Parameter*> parameters() override;
  std::vector<nn::Linear*> linears() override;
  std::vector<vision::Product> products() override;
  double attention_products() const override;

 private:
  nn::State look(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;

  const Config& config_;
  int64_t layer_;
  QFormerAttention self_;
  std::unique_ptr<QFormerAttention> cross_;  // null: no cross-attention in this layer
  nn::Linear intermediate_, output_;
  nn::LayerNorm norm_;
};

// Projects to the language model's width: "picture" (c, hidden_size), the only tensor passed on.
class Projection final : public vision::PictureUnit {
 public:
  Projection(const Config& config, int64_t language_size);
  std::vector<nn::Parameter*> parameters() override;
  std::vector<nn::Linear*> linears() override { return {&linear_}; }
  std::vector<vision::Product> products() override {
    return {{&linear_, config_.num_query_tokens}};
  }

 private:
  nn::State look(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;

  const Config& config_;
  nn::Linear linear_;
};

}  // namespace snug::models::blip2
