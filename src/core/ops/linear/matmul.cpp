// SPDX-License-Identifier: Apache-2.0
#include "core/ops/linear/matmul.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include "base/error.h"
#include "core/kernels/cpu/linalg/gemm.h"
#include "core/kernels/sum_of_rows.h"
#include "core/ops/device/cuda.h"
#include "core/ops/device/device.h"
#include "core/ops/linear/row_room.h"

namespace snug::ops {
namespace {

kernels::cpu::MatrixView view(const at::Tensor& t) {
  SNUG_CHECK(t.dim() == 2 && (t.stride(0) == 1 || t.stride(1) == 1 || t.numel() == 0),
             "operand of {} dimensions has no unit stride", t.dim());
  return {t.is_meta() ? nullptr : t.const_data_ptr(), to_scalar(t.scalar_type()), t.stride(0),
          t.stride(1)};
}

}  // namespace

void library_product(at::Tensor out, const at::Tensor& a, const at::Tensor& b, Into into,
                     float alpha) {
  const int beta = into == Into::Accumulate ? 1 : 0;
  const bool scaled_sum = into == Into::Accumulate || alpha != 1.0F;
  const at::ScalarType type = out.scalar_type();
  // To a sum of one row libtorch adds as it would add a bias, by cuBLASLt, with a workspace of its
  // own that no plan knows. Of one column it does not.
  if (into == Into::Accumulate && out.size(0) == 1 && out.size(1) > 1)
    return library_product(out.t(), b.t(), a.t(), into, alpha);
  // float32 from halves is an operator of its own, which only cuda has.
  const bool widens = type != a.scalar_type();
  if (scaled_sum && widens)
    at::addmm_out(out, out, a, b, type, beta, alpha);
  else if (scaled_sum)
    at::addmm_out(out, out, a, b, beta, alpha);
  else if (widens)
    at::mm_out(out, a, b, type);
  else
    at::mm_out(out, a, b);
}

void matmul_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, Into into,
                 float alpha) {
  SNUG_CHECK(a.size(1) == b.size(0) && out.size(0) == a.size(0) && out.size(1) == b.size(1),
             "product of {}x{} and {}x{} into {}x{}", a.size(0), a.size(1), b.size(0), b.size(1),
             out.size(0), out.size(1));
  if (kernel_device(out) == at::kCUDA) {
    // (On meta libtorch lacks the product of halves that is float32.)
    if (!out.is_meta())
      library_product(out, a, b, into, alpha);
    else if (calls_cuda(out))
      note_product(out, a, b, into == Into::Accumulate, alpha != 1.0F);
    return;
  }
  kernels::cpu::GemmArgs args{.m = out.size(0),
                              .n = out.size(1),
                              .k = a.size(1),
                              .a = view(a),
                              .b = view(b),
                              .c = out.is_meta() ? nullptr : out.mutable_data_ptr(),
                              .c_type = to_scalar(out.scalar_type()),
                              .c_row_stride = out.stride(0),
                              .alpha = alpha,
                              .accumulate = into == Into::Accumulate};
  with_workspace(out, product_workspace_bytes(args),
                 [&](void* scratch) { kernels::cpu::gemm(args, scratch); });
}

at::ScalarType operand_type(const at::Tensor& x) {
  if (kernel_device(x) == at::kCUDA) return x.scalar_type();
  const bool fast = x.scalar_type() == at::kBFloat16 && kernels::cpu::multiplies_bf16();
  return fast ? at::kBFloat16 : at::kFloat;
}

void sum_of_rows_into(const at::Tensor& total, const at::Tensor& a, Into into) {
  if (kernel_device(a) != at::kCUDA)
    return matmul_into(total.unsqueeze(0), at::ones({1, a.size(0)}, a.options()), a, into);
  SNUG_CHECK(a.dim() == 2 && a.stride(1) == 1, "rows to sum of {} dimensions, {} apart", a.dim(),
             a.stride(-1));
  const kernels::SumOfRows args{.type = to_scalar(a.scalar_type()),
                                .rows = a.size(0),
                                .dim = a.size(1),
                                .row_stride = a.stride(0),
                                .x = read_pointer(a),
                                .total = {.data = write_pointer(total),
                                          .type = to_scalar(total.scalar_type()),
                                          .accumulate = into == Into::Accumulate}};
  if (calls_cuda(a)) cuda::sum_of_rows(args);
}

at::Tensor matmul(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) {
  at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options().dtype(type));
  matmul_into(out, a, b, Into::Overwrite);
  return out;
}

at::Tensor ProductInput::value() const {
  if (!activation) return x;
  return up ? gated(x, *up, *activation) : activate(x, *activation);
}

ProductInput::Gradients ProductInput::gradients(const at::Tensor& d_value, Value value) const {
  if (!activation) return {d_value, {}, x};
  if (up) {
    at::Tensor d_up = *up;
    if (kind_of_up == Up::Shared) {
      d_up = at::empty(up->sizes(), up->options());
      copy(d_up, *up);
    }
    gated_backward_in_place(d_value, x, d_up, *activation, value);
    return {x, d_up, d_value};
  }
  activation_backward_in_place(d_value, x, *activation, value);
  return {d_value, {}, x};
}

}  // namespace snug::ops
