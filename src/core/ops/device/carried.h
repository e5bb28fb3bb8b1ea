// What an autograd node needs besides saved tensors. It is released with the graph.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <utility>

namespace snug::ops {

template <class T>
struct Carried final : torch::CustomClassHolder {
  explicit Carried(T v) : value(std::move(v)) {}
  T value;
};

// One for each node.
template <class T>
void carry(torch::autograd::AutogradContext* ctx, T value) {
  ctx->saved_data["carried"] =
      c10::IValue::make_capsule(c10::make_intrusive<Carried<T>>(std::move(value)));
}

// Must be what carry() was given, of the same type.
template <class T>
const T& carried(torch::autograd::AutogradContext* ctx) {
  return static_cast<const Carried<T>*>(ctx->saved_data["carried"].toCapsule().get())->value;
}

}  // namespace snug::ops
