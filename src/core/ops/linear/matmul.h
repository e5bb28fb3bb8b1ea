// Matrix products on the operands' device: on cuda by cuBLAS through libtorch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "core/ops/elementwise.h"

namespace snug::ops {

enum class Into { Overwrite, Accumulate };

// out (m, n) = or += a (m, k) · b (k, n). Operands may be transposed views; `out` has unit column
// stride. Sums are float32, rounded once. The types of a, b and out may differ on the CPU; on cuda
// a and b have one type, and out has it too or is float32.
void matmul_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, Into into,
                 float alpha = 1.0F);

// The same by libtorch, as on cuda.
void library_product(at::Tensor out, const at::Tensor& a, const at::Tensor& b, Into into,
                     float alpha);

// A new (m, n) tensor of `type`.
at::Tensor matmul(const at::Tensor& a, const at::Tensor& b, at::ScalarType type);

// total (n) = or += the sum of a's (m, n) rows, without a float32 copy of `a` as at::sum would make
// on the CPU: there it is a product with ones, on cuda a kernel.
void sum_of_rows_into(const at::Tensor& total, const at::Tensor& a, Into into);

// The type in which float32 intermediates are multiplied with x: x's type if the device multiplies
// it faster than float32, else float32.
at::ScalarType operand_type(const at::Tensor& x);

// Whether who made `up` needs it for its own backward.
enum class Up : bool { Own, Shared };

// The input of a product with a weight: a tensor, its activation, or the activation of a gate times
// another tensor. Only the operands are saved, and the backward recomputes the value, so that an
// MLP's widest tensor exists only during its product.
struct ProductInput {
  at::Tensor x;                          // (N, F)
  std::optional<at::Tensor> up;          // (N, F), with an activation
  std::optional<Activation> activation;  // of x; none: x itself
  Up kind_of_up = Up::Own;

  // Whether the backward needs x (and up).
  bool keeps(bool value_is_needed) const { return value_is_needed || activation.has_value(); }
  at::Tensor value() const;
  // The gradients of x and up (undefined without up) from the value's gradient; with Value::Again
  // also the value. With an activation they overwrite d_value, x and an Up::Own, the latter two
  // being outputs of products that nothing else needs.
  struct Gradients {
    at::Tensor x, up, value;
  };
  Gradients gradients(const at::Tensor& d_value, Value value) const;
};

}  // namespace snug::ops
