// Sums gradients of several chunks in float32 and rounds once. In 16 bits each addition would round
// the whole sum, with noise that grows with the number of chunks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace snug::ops {

// While it lives, operators add gradients of these parameters (core/ops/device/device.h) to float32
// sums if the gradients have a shorter type.
class GradientSums {
 public:
  explicit GradientSums(const std::vector<at::Tensor>& parameters);
  ~GradientSums();  // discards sums without finish()
  GradientSums(const GradientSums&) = delete;
  GradientSums& operator=(const GradientSums&) = delete;

  // Adds the sums to the parameters' gradients.
  void finish();

 private:
  struct Sum {
    at::Tensor parameter;
    at::Tensor gradient, slot;  // of the parameter before
  };

  // Takes the sum from the parameter and restores its gradient and slot.
  static at::Tensor take(Sum& sum);

  std::vector<Sum> sums_;
};

}  // namespace snug::ops
