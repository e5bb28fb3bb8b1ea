// SPDX-License-Identifier: Apache-2.0
#include "nn/linear.h"

#include "kernels/cpu/random_key.h"
#include "ops/linear.h"

namespace snug::nn {

Linear::Linear(const std::string& name, Role role, int64_t in_features, int64_t out_features,
               Bias bias)
    : name_(name),
      role_(role),
      weight_{.name = name + ".weight", .shape = {out_features, in_features}},
      bias_{.name = name + ".bias", .shape = {out_features}, .init = Init::Zeros},
      has_bias_(bias == Bias::Present) {}

Linear::Linear(const std::string& name, Role role, Parameter& tied)
    : name_(name), role_(role), has_bias_(false), tied_(&tied) {}

ops::Projection Linear::projection(const Pass& pass) const {
  const Parameter& w = weight();
  ops::Projection result{.bias = bias_.value};
  if (w.quantization)
    result.quantized = {w.value, w.quantization->format, w.shape[0], w.shape[1]};
  else
    result.weight = w.value;
  if (adapter_ == nullptr) return result;
  result.adapter = ops::LowRank{.a = adapter_->a.value,
                                .b = adapter_->b.value,
                                .magnitude = adapter_->magnitude.value,
                                .scaling = adapter_->options.scaling};
  if (pass.dropout_key) {
    result.adapter->dropout = adapter_->options.dropout;
    result.adapter->dropout_key = kernels::cpu::mix64(*pass.dropout_key ^ hash_name(name_));
  }
  return result;
}

at::Tensor Linear::forward(const at::Tensor& x, const Pass& pass) const {
  return ops::linear(x, projection(pass));
}

at::Tensor Linear::forward_swiglu(const at::Tensor& gate, const at::Tensor& up,
                                  const Pass& pass) const {
  return ops::swiglu_linear(gate, up, projection(pass));
}

void Linear::list(std::vector<Parameter*>& parameters) {
  if (tied_ == nullptr) parameters.push_back(&weight_);
  if (has_bias_) parameters.push_back(&bias_);
  if (adapter_ != nullptr) adapter_->list(parameters);
}

}  // namespace snug::nn
