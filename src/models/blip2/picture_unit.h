// A unit that processes pictures. For a batch without pictures it passes its input through, so that
// the same chain of units also runs text only.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/nn/linear.h"
#include "core/nn/unit.h"
#include "models/blip2/config.h"

namespace snug::models::blip2 {

// A layer and its number of input rows per picture.
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

}  // namespace snug::models::blip2
