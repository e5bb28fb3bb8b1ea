// A matrix product with a weight: the one place that knows how the weight is stored.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "nn/parameter.h"

namespace snug::nn {

enum class Bias { None, Present };

class Linear {
 public:
  // Parameters `name`.weight (out, in) and, if present, `name`.bias (out).
  Linear(const std::string& name, int64_t in_features, int64_t out_features, Bias bias);

  // x (N, in) -> (N, out), in x's type.
  at::Tensor forward(const at::Tensor& x) const;
  // down(silu(gate) * up) with this layer as `down`; gate and up (N, in) -> (N, out).
  at::Tensor forward_swiglu(const at::Tensor& gate, const at::Tensor& up) const;

  void list(std::vector<Parameter*>& parameters);

 private:
  Parameter weight_;
  Parameter bias_;
  bool has_bias_;
};

}  // namespace snug::nn
