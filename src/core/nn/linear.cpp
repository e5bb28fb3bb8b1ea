// SPDX-License-Identifier: Apache-2.0
#include "core/nn/linear.h"

#include "base/error.h"
#include "core/kernels/random_key.h"
#include "core/nn/input_observer.h"
#include "core/ops/linear/linear.h"
#include "core/ops/linear/tensor_parallel.h"

namespace snug::nn {

Linear::Linear(const std::string& name, Role role, int64_t in_features, int64_t out_features,
               Bias bias)
    : name_(name),
      role_(role),
      weight_{.name = name + ".weight",
              .shape = {out_features, in_features},
              .role = role == Role::Head || role == Role::Score ? ParameterRole::Head
                                                                : ParameterRole::Matrix},
      bias_{.name = name + ".bias", .shape = {out_features}, .init = Init::Zeros},
      has_bias_(bias == Bias::Present) {}

Linear::Linear(const std::string& name, Role role, Parameter& tied)
    : name_(name), role_(role), has_bias_(false), tied_(&tied) {}

ops::Projection Linear::projection(const Pass& pass) const {
  ops::Projection result{.weight = weight().stored(weight().value), .bias = bias_.value};
  result.part = part();
  if (adapter_ == nullptr) return result;
  result.adapter = ops::LowRank{.a = adapter_->a.value,
                                .b = adapter_->b.value,
                                .magnitude = adapter_->magnitude.value,
                                .scaling = adapter_->options.scaling};
  if (pass.dropout_key) {
    result.adapter->dropout = adapter_->options.dropout;
    result.adapter->dropout_key = mask_key(pass, name_);
    result.adapter->rows = pass.rows;
  }
  return result;
}

ops::Cut Linear::cut() const {
  if (!weight().slice || weight().slice->owner) return ops::Cut::None;
  return weight().slice->dim == 0 ? ops::Cut::Outputs : ops::Cut::Inputs;
}

ops::Part Linear::part() const {
  const Parameter& w = weight();
  ops::Part part{.cut = cut()};
  if (w.share == nullptr) return part;
  part.group = part.cut == ops::Cut::None ? w.share->other_rows() : w.share->group;
  if (part.cut != ops::Cut::Inputs) return part;
  part.first_input = w.slice->begin;
  part.whole_inputs = w.slice->whole[1];
  return part;
}

at::Tensor Linear::forward_input(const ops::ProductInput& input, const Pass& pass) const {
  if (cut() == ops::Cut::Inputs)
    return ops::input_cut_linear(input, projection(pass), *weight().share);
  SNUG_CHECK(
      cut() == ops::Cut::None,
      "{}: split along outputs, this layer cannot take an input of this rank's features only",
      name_);
  if (const InputObserver* observer = InputObserver::current()) {
    const at::Tensor value = input.value();
    observer->show(*this, value);
    return ops::linear(value, projection(pass));
  }
  return ops::linear(input, projection(pass));
}

at::Tensor Linear::forward(const at::Tensor& x, const Pass& pass) const {
  return forward_input({.x = x}, pass);
}

at::Tensor Linear::forward_features(const at::Tensor& x, const Pass& pass) const {
  SNUG_CHECK(cut() != ops::Cut::Inputs,
             "{}: split along inputs, this layer has no features of its own on this rank", name_);
  return ops::linear(x, projection(pass));
}

at::Tensor Linear::forward_activated(const at::Tensor& x, ops::Activation activation,
                                     const Pass& pass) const {
  return forward_input({.x = x, .activation = activation}, pass);
}

at::Tensor Linear::forward_gated(const at::Tensor& gate, const at::Tensor& up,
                                 ops::Activation activation, const Pass& pass,
                                 ops::Up kind_of_up) const {
  return forward_input({.x = gate, .up = up, .activation = activation, .kind_of_up = kind_of_up},
                       pass);
}

void Linear::list(std::vector<Parameter*>& parameters) {
  if (tied_ == nullptr) parameters.push_back(&weight_);
  if (has_bias_) parameters.push_back(&bias_);
  if (adapter_ != nullptr) adapter_->list(parameters);
}

}  // namespace snug::nn
