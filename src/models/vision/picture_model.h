// A model that looks at pictures, as one chain: units that turn pictures into features as wide as
// the language model's hidden states, and then the units of the language model.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "models/model.h"
#include "models/vision/vision.h"

namespace snug::models::vision {

class PictureModel : public Model {
 public:
  std::vector<nn::Unit*> units() final;
  // The language model's, which generation uses.
  Dimensions dimensions() const final { return language_->dimensions(); }
  double initializer_range() const final { return language_->initializer_range(); }
  void prepare(at::Device device, int64_t max_seqlen) final {
    language_->prepare(device, max_seqlen);
  }
  double flops_per_token(double seqlen, double pictures) const final;

  const Pixels& pixels() const { return pixels_; }
  void set_pixels(const Pixels& pixels) { pixels_ = pixels; }

 protected:
  PictureModel(const Pixels& pixels, std::unique_ptr<Model> language)
      : pixels_(pixels), language_(std::move(language)) {}

  virtual std::vector<PictureUnit*> picture_units() const = 0;
  Model& language() const { return *language_; }

 private:
  // Floating-point operations per picture, forward and backward.
  double picture_flops() const;

  Pixels pixels_;
  std::unique_ptr<Model> language_;
};

}  // namespace snug::models::vision
