// Gradients that come in pieces, added up in float32 and rounded once: in 16 bits each piece that
// is added would round the whole sum, and the noise grows with the number of pieces.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace snug::ops {

// While it lives, gradients of these parameters that operators make (ops/device.h) go into float32
// sums, where they would be of a shorter type.
class GradientSums {
 public:
  explicit GradientSums(const std::vector<at::Tensor>& parameters);
  ~GradientSums();  // what was not added to the gradients is lost
  GradientSums(const GradientSums&) = delete;
  GradientSums& operator=(const GradientSums&) = delete;

  // Adds the sums to the parameters' gradients.
  void finish();

 private:
  struct Sum {
    at::Tensor parameter;
    at::Tensor gradient, slot;  // that were there before
  };

  // Takes the sum from the parameter, and puts back what was there.
  static at::Tensor take(Sum& sum);

  std::vector<Sum> sums_;
};

}  // namespace snug::ops
