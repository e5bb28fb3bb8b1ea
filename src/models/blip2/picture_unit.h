// A unit that works on pictures. Where a batch has none it hands on what it got, so that the same
// chain runs text alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "models/blip2/config.h"
#include "nn/linear.h"
#include "nn/unit.h"

namespace snug::models::blip2 {

// A layer and how many rows a picture gives it.
struct Product {
  nn::Linear* layer;
  int64_t rows;
};

class PictureUnit : public nn::Unit {
 public:
  using nn::Unit::Unit;

  nn::State forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) final {
    return batch.pixels.defined() ? look(input, batch, pass) : input;
  }

  virtual std::vector<Product> products() { return {}; }
  // Multiplications of a picture's attention: scores and weighted sums.
  virtual double attention_products() const { return 0; }

 private:
  // The forward of a batch that has pictures.
  virtual nn::State look(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) = 0;
};

// A layer, with the deviation that random weights of it start with, and how ranks share it.
inline nn::Linear make_linear(const std::string& name, int64_t in_features, int64_t out_features,
                              nn::Bias bias, double deviation, ops::Cut cut) {
  nn::Linear result(name, nn::Role::Other, in_features, out_features, bias);
  result.weight().init_scale = deviation;
  result.share_by(cut);
  return result;
}

}  // namespace snug::models::blip2
