// Matrix products of 16-bit numbers with float32 sums as a result, which libtorch has for CUDA
// alone.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <torch/library.h>

#include "core/simulated/operators.h"

namespace snug::simulated {
namespace {

using kernels::simulated::Use;

void check(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, at::ScalarType type) {
  TORCH_CHECK(
      type == at::kFloat && out.scalar_type() == type && a.scalar_type() == b.scalar_type() &&
          (a.scalar_type() == at::kHalf || a.scalar_type() == at::kBFloat16),
      "simulated GPU: a product of ", a.scalar_type(), " and ", b.scalar_type(), " as ", type);
  TORCH_CHECK(out.size(0) == a.size(0) && out.size(1) == b.size(1), "simulated GPU: a product of ",
              a.sizes(), " and ", b.sizes(), " in ", out.sizes());
}

at::Tensor& mm(const at::Tensor& a, const at::Tensor& b, at::ScalarType type, at::Tensor& out) {
  check(a, b, out, type);
  enqueue_operator("aten::mm", [a = on_cpu(a), b = on_cpu(b), out = on_cpu(out)]() mutable {
    touch_tensor(a, Use::Reads);
    touch_tensor(b, Use::Reads);
    touch_tensor(out, Use::Writes);
    out.copy_(at::mm(a.to(at::kFloat), b.to(at::kFloat)));
  });
  return out;
}

at::Tensor& addmm(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                  at::ScalarType type, const at::Scalar& beta, const at::Scalar& alpha,
                  at::Tensor& out) {
  check(a, b, out, type);
  enqueue_operator("aten::addmm", [self = on_cpu(self), a = on_cpu(a), b = on_cpu(b),
                                   out = on_cpu(out), beta, alpha]() mutable {
    if (beta.toDouble() != 0) touch_tensor(self, Use::Reads);
    touch_tensor(a, Use::Reads);
    touch_tensor(b, Use::Reads);
    touch_tensor(out, Use::Writes);
    out.copy_(at::addmm(self, a.to(at::kFloat), b.to(at::kFloat), beta, alpha));
  });
  return out;
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("mm.dtype_out", TORCH_FN(mm));
  m.impl("addmm.dtype_out", TORCH_FN(addmm));
}

}  // namespace
}  // namespace snug::simulated
