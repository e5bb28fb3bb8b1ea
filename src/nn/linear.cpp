// SPDX-License-Identifier: Apache-2.0
#include "nn/linear.h"

#include "ops/linear.h"

namespace snug::nn {

Linear::Linear(const std::string& name, int64_t in_features, int64_t out_features, Bias bias)
    : weight_{.name = name + ".weight", .shape = {out_features, in_features}, .value = {}},
      bias_{.name = name + ".bias", .shape = {out_features}, .init = Init::Zeros, .value = {}},
      has_bias_(bias == Bias::Present) {}

at::Tensor Linear::forward(const at::Tensor& x) const {
  return ops::linear(x, weight_.value, bias_.value);
}

at::Tensor Linear::forward_swiglu(const at::Tensor& gate, const at::Tensor& up) const {
  return ops::swiglu_linear(gate, up, weight_.value, bias_.value);
}

void Linear::list(std::vector<Parameter*>& parameters) {
  parameters.push_back(&weight_);
  if (has_bias_) parameters.push_back(&bias_);
}

}  // namespace snug::nn
