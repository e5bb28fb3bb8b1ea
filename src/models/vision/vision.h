// A vision transformer as units: patch embedding with positions, blocks, final norm. State:
// "vision" (c, D), c of the S·P rows as core/nn/functions.h says. The final norm passes all rows
// on: what follows reads several at once. S pictures, P positions, D hidden_size.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/nn/functions.h"
#include "core/nn/linear.h"
#include "core/nn/unit.h"
#include "models/vision/config.h"

namespace snug::models::vision {

// A layer and its number of input rows per picture.
struct Product {
  nn::Linear* layer;
  int64_t rows;
};

// A unit that processes pictures. For a batch without pictures it passes its input through, so that
// the same chain of units also runs text only.
class PictureUnit : public nn::Unit {
 public:
  using nn::Unit::Unit;

  nn::State forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) final {
    return batch.pixels.defined() ? look(input, batch, pass) : input;
  }

  virtual std::vector<Product> products() { return {}; }
  // Multiplications in attention per picture: scores and weighted sums.
  virtual double attention_products() const { return 0; }

 private:
  // The forward of a batch that has pictures.
  virtual nn::State look(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) = 0;
};

// Makes a layer with its standard deviation for random weights.
inline nn::Linear make_linear(const std::string& name, int64_t in_features, int64_t out_features,
                              nn::Bias bias, double deviation) {
  nn::Linear result(name, nn::Role::Other, in_features, out_features, bias);
  result.weight().init_scale = deviation;
  return result;
}

class VisionEmbeddings final : public PictureUnit {
 public:
  VisionEmbeddings(const Config& config, const Pixels& pixels);
  std::vector<nn::Parameter*> parameters() override;
  std::vector<Product> products() override;

  // The parameter's shape in files; empty: the same as here.
  std::vector<int64_t> file_shape(const nn::Parameter& parameter) const;

 private:
  nn::State look(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;

  const Config& config_;
  const Pixels& pixels_;
  std::optional<nn::Parameter> class_;  // (1, D), before the patches
  nn::Parameter position_;              // (P, D)
  // (D, 3·patch·patch), stored as a convolution; never adapted or quantized.
  nn::Linear patch_;
};

class VisionBlock final : public PictureUnit {
 public:
  VisionBlock(const Config& config, int64_t layer);
  std::vector<nn::Parameter*> parameters() override;
  std::vector<nn::Linear*> linears() override;
  std::vector<Product> products() override;
  double attention_products() const override;

 private:
  nn::State look(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;
  int64_t num_rows(const nn::Batch& batch) const;
  // (c, D) -> (c, D)
  at::Tensor attend(const at::Tensor& x, const nn::Batch& batch, const nn::Pass& pass) const;

  const Config& config_;
  nn::LayerNorm norm1_;
  std::vector<nn::Linear> qkv_;  // one each, or one for all
  nn::Linear projection_;
  nn::LayerNorm norm2_;
  nn::Linear fc1_, fc2_;
};

class VisionNorm final : public PictureUnit {
 public:
  explicit VisionNorm(const Config& config);
  std::vector<nn::Parameter*> parameters() override;

 private:
  nn::State look(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;

  const Config& config_;
  nn::LayerNorm norm_;
};

}  // namespace snug::models::vision
