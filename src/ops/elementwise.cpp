// SPDX-License-Identifier: Apache-2.0
#include "ops/elementwise.h"

#include <ATen/ops/empty_like.h>

#include <cstring>

#include "base/error.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/global_norm.h"
#include "ops/device.h"

namespace snug::ops {

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  at::Tensor out = at::empty_like(gate);
  if (!out.is_meta())
    kernels::cpu::gated_forward({.type = to_scalar(gate.scalar_type()),
                                 .rows = gate.size(0),
                                 .features = gate.size(1),
                                 .gate = gate.const_data_ptr(),
                                 .up = up.const_data_ptr(),
                                 .y = out.mutable_data_ptr()});
  return out;
}

void swiglu_backward_in_place(const at::Tensor& d_out, const at::Tensor& gate,
                              const at::Tensor& up) {
  if (d_out.is_meta()) return;
  kernels::cpu::gated_backward({.type = to_scalar(gate.scalar_type()),
                                .rows = gate.size(0),
                                .features = gate.size(1),
                                .dy = d_out.const_data_ptr(),
                                .gate = gate.const_data_ptr(),
                                .up = up.const_data_ptr(),
                                .dgate = gate.mutable_data_ptr(),
                                .dup = up.mutable_data_ptr()});
}

at::Tensor cast(const at::Tensor& x, at::ScalarType type) {
  at::Tensor out = at::empty_like(x, x.options().dtype(type).requires_grad(false));
  if (!x.is_meta())
    kernels::cpu::cast(x.const_data_ptr(), to_scalar(x.scalar_type()), out.mutable_data_ptr(),
                       to_scalar(type), x.numel());
  return out;
}

void copy(const at::Tensor& to, const at::Tensor& from) {
  SNUG_CHECK(to.numel() == from.numel(), "{} elements into {}", from.numel(), to.numel());
  if (!to.is_meta())
    kernels::cpu::cast(from.const_data_ptr(), to_scalar(from.scalar_type()), to.mutable_data_ptr(),
                       to_scalar(to.scalar_type()), to.numel());
}

void copy_storage(const at::Tensor& to, const at::Tensor& from) {
  SNUG_CHECK(to.storage().nbytes() == from.storage().nbytes(), "{} bytes into {}",
             from.storage().nbytes(), to.storage().nbytes());
  if (!to.is_meta())
    std::memcpy(to.storage().mutable_data(), from.storage().data(), from.storage().nbytes());
}

void accumulate(const at::Tensor& to, const at::Tensor& from, float alpha) {
  SNUG_CHECK(to.numel() == from.numel(), "{} elements into {}", from.numel(), to.numel());
  if (to.is_meta()) return;
  kernels::cpu::accumulate(to.mutable_data_ptr(), to_scalar(to.scalar_type()),
                           from.const_data_ptr(), to_scalar(from.scalar_type()), to.numel(), alpha);
}

void fill(const at::Tensor& x, float value) {
  if (!x.is_meta())
    kernels::cpu::fill(x.mutable_data_ptr(), to_scalar(x.scalar_type()), value, x.numel());
}

void scale_in_place(const at::Tensor& x, float factor) {
  if (!x.is_meta())
    kernels::cpu::scale(x.mutable_data_ptr(), to_scalar(x.scalar_type()), factor, x.numel());
}

double sum_of_squares(const std::vector<at::Tensor>& tensors) {
  std::vector<kernels::cpu::TensorView> views;
  for (const at::Tensor& t : tensors) {
    if (t.is_meta()) return 1.0;
    views.push_back({t.numel(), t.const_data_ptr(), to_scalar(t.scalar_type())});
  }
  return kernels::cpu::sum_of_squares(views).value;
}

}  // namespace snug::ops
