// Pointwise operations without autograd, building blocks of the other operators. Each works on cpu,
// cuda and, shapes only, on meta.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "core/kernels/activation.h"

namespace snug::ops {

using kernels::Activation;

// activation(x)
at::Tensor activate(const at::Tensor& x, Activation activation);
// Whether a backward writes its operator's value once more.
enum class Value { Dropped, Again };

// The gradient of x, written over d_out; the value over x.
void activation_backward_in_place(const at::Tensor& d_out, const at::Tensor& x,
                                  Activation activation, Value value = Value::Dropped);

// What a gate does with its operand: activation(gate) * up, or with a limit the clamped form.
struct Gate {
  // NOLINTNEXTLINE(google-explicit-constructor): an activation is a gate
  Gate(Activation a = Activation::Silu, kernels::GateClamp c = {}) : activation(a), clamp(c) {}
  Activation activation;
  kernels::GateClamp clamp;
};

// The gate's result, all (N, F).
at::Tensor gated(const at::Tensor& gate, const at::Tensor& up, const Gate& of);
// The gradients of gate and up, written over them; the value over d_out.
void gated_backward_in_place(const at::Tensor& d_out, const at::Tensor& gate, const at::Tensor& up,
                             const Gate& of, Value value = Value::Dropped);

// Whether a copy between host and cuda is complete on return. With No it runs in the order of the
// current stream, and the pinned host memory must not change until then.
enum class Wait { Yes, No };

// to = from, converted to to's type; same number of elements. Between host and cuda numbers are
// converted on the device, in scratch of a few MiB; both are contiguous then.
void copy(const at::Tensor& to, const at::Tensor& from, Wait wait = Wait::Yes);
// All bytes of from's storage, whatever part of it the tensor views, into to's.
void copy_storage(const at::Tensor& to, const at::Tensor& from, Wait wait = Wait::Yes);

// A copy in another type, rounded to nearest even.
at::Tensor cast(const at::Tensor& x, at::ScalarType type);

// to += alpha * from, types may differ.
void accumulate(const at::Tensor& to, const at::Tensor& from, float alpha = 1.0F);

void fill(const at::Tensor& x, float value);

// Sum of squares over all tensors, in double: infinite or NaN when an element is. It is added up
// where the tensors are, all on one device, and nothing waits for it but value().
class SumOfSquares {
 public:
  void add(const std::vector<at::Tensor>& tensors);
  // Returns the sum and sets it to zero. On cuda the host waits for it. 1 on meta.
  double value();

 private:
  double on_host_ = 0;
  at::Tensor on_device_;  // (1) double
};

double sum_of_squares(const std::vector<at::Tensor>& tensors);

}  // namespace snug::ops
