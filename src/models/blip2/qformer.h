// The Q-Former as units, and the projection of its answers into the language model. "queries" flow
// through them, (c, D), with the picture they ask, "vision" (S·P, V): S pictures, Q queries, P
// positions, D hidden_size, V the vision model's. Of S·Q rows c are here, all unless ranks share
// the layers (nn/functions.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "models/blip2/picture_unit.h"
#include "nn/attention.h"
#include "nn/functions.h"

namespace snug::models::blip2 {

class QFormerEmbeddings final : public PictureUnit {
 public:
  explicit QFormerEmbeddings(const Config& config);
  std::vector<nn::Parameter*> parameters() override;
  // In files; empty: as here.
  std::vector<int64_t> file_shape(const nn::Parameter& parameter) const;

 private:
  nn::State look(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;

  const Config& config_;
  nn::Parameter queries_;  // (Q, D)
  nn::LayerNorm norm_;
};

// norm(x + dropout(dense(what attention makes of x))): BERT's order, with the norm behind.
class QFormerAttention {
 public:
  // To the queries themselves, or to features of another size.
  QFormerAttention(const std::string& name, const QFormerConfig& config, int64_t source_size);

  // x (c, D) of `num_rows` in all -> (c, D)
  at::Tensor to_themselves(const at::Tensor& x, const nn::Packed& queries, int64_t num_rows,
                           const nn::Pass& pass) const;
  // The same of source (S·n, source_size), which every rank has all of.
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

class QFormerBlock final : public PictureUnit {
 public:
  QFormerBlock(const Config& config, int64_t layer);
  std::vector<nn::Parameter*> parameters() override;
  std::vector<nn::Linear*> linears() override;
  std::vector<Product> products() override;
  double attention_products() const override;

 private:
  nn::State look(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;

  const Config& config_;
  int64_t layer_;
  QFormerAttention self_;
  std::unique_ptr<QFormerAttention> cross_;  // null: this layer does not look at the picture
  nn::Linear intermediate_, output_;
  nn::LayerNorm norm_;
};

// To the language model's size: "picture" (c, hidden_size), which is all that goes on from here.
class Projection final : public PictureUnit {
 public:
  Projection(const Config& config, int64_t language_size);
  std::vector<nn::Parameter*> parameters() override;
  std::vector<nn::Linear*> linears() override { return {&linear_}; }
  std::vector<Product> products() override { return {{&linear_, config_.num_query_tokens}}; }

 private:
  nn::State look(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;

  const Config& config_;
  nn::Linear linear_;
};

}  // namespace snug::models::blip2
