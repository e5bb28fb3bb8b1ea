// SPDX-License-Identifier: Apache-2.0
#include "ops/elementwise.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cstring>

#include "base/error.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/global_norm.h"
#include "ops/cuda.h"
#include "ops/device.h"

namespace snug::ops {
namespace {

// A tensor of bytes over the whole storage.
at::Tensor storage_bytes(const at::Tensor& t) {
  const auto bytes = static_cast<int64_t>(t.storage().nbytes());
  return at::empty({0}, t.options().dtype(at::kByte)).set_(t.storage(), 0, {bytes}, {1});
}

}  // namespace

at::Tensor activate(const at::Tensor& x, Activation activation) {
  at::Tensor out = at::empty_like(x);
  const kernels::cpu::ActivationForward args{.activation = activation,
                                             .type = to_scalar(x.scalar_type()),
                                             .count = x.numel(),
                                             .x = read_pointer(x),
                                             .y = write_pointer(out)};
  run_on(
      x, [&] { kernels::cpu::activation_forward(args); }, [&] { cuda::activation_forward(args); });
  return out;
}

void activation_backward_in_place(const at::Tensor& d_out, const at::Tensor& x,
                                  Activation activation) {
  const kernels::cpu::ActivationBackward args{.activation = activation,
                                              .type = to_scalar(x.scalar_type()),
                                              .count = x.numel(),
                                              .dy = read_pointer(d_out),
                                              .x = read_pointer(x),
                                              .dx = write_pointer(d_out)};
  run_on(
      x, [&] { kernels::cpu::activation_backward(args); },
      [&] { cuda::activation_backward(args); });
}

at::Tensor gated(const at::Tensor& gate, const at::Tensor& up, Activation activation) {
  at::Tensor out = at::empty_like(gate);
  const kernels::cpu::GatedForward args{.activation = activation,
                                        .type = to_scalar(gate.scalar_type()),
                                        .rows = gate.size(0),
                                        .features = gate.size(1),
                                        .gate = read_pointer(gate),
                                        .up = read_pointer(up),
                                        .y = write_pointer(out)};
  run_on(
      gate, [&] { kernels::cpu::gated_forward(args); }, [&] { cuda::gated_forward(args); });
  return out;
}

void gated_backward_in_place(const at::Tensor& d_out, const at::Tensor& gate, const at::Tensor& up,
                             Activation activation) {
  const kernels::cpu::GatedBackward args{.activation = activation,
                                         .type = to_scalar(gate.scalar_type()),
                                         .rows = gate.size(0),
                                         .features = gate.size(1),
                                         .dy = read_pointer(d_out),
                                         .gate = read_pointer(gate),
                                         .up = read_pointer(up),
                                         .dgate = write_pointer(gate),
                                         .dup = write_pointer(up)};
  run_on(
      gate, [&] { kernels::cpu::gated_backward(args); }, [&] { cuda::gated_backward(args); });
}

at::Tensor cast(const at::Tensor& x, at::ScalarType type) {
  at::Tensor out = at::empty_like(x, x.options().dtype(type).requires_grad(false));
  run_on(
      x,
      [&] {
        kernels::cpu::cast(x.const_data_ptr(), to_scalar(x.scalar_type()), out.mutable_data_ptr(),
                           to_scalar(type), x.numel());
      },
      [&] { out.copy_(x); });
  return out;
}

void copy(const at::Tensor& to, const at::Tensor& from, Wait wait) {
  SNUG_CHECK(to.numel() == from.numel(), "{} elements into {}", from.numel(), to.numel());
  if (to.is_cuda() || from.is_cuda())
    // Without blocking, libtorch would convert on the device, in memory that no plan knows.
    to.detach().copy_(from.detach(),
                      /*non_blocking=*/wait == Wait::No && to.scalar_type() == from.scalar_type());
  else if (!to.is_meta() && from.scalar_type() == at::kByte)  // a quantized weight
    std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
  else if (!to.is_meta())
    kernels::cpu::cast(from.const_data_ptr(), to_scalar(from.scalar_type()), to.mutable_data_ptr(),
                       to_scalar(to.scalar_type()), to.numel());
}

void copy_storage(const at::Tensor& to, const at::Tensor& from, Wait wait) {
  SNUG_CHECK(to.storage().nbytes() == from.storage().nbytes(), "{} bytes into {}",
             from.storage().nbytes(), to.storage().nbytes());
  if (to.is_cuda() || from.is_cuda())
    storage_bytes(to).copy_(storage_bytes(from), /*non_blocking=*/wait == Wait::No);
  else if (!to.is_meta())
    std::memcpy(to.storage().mutable_data(), from.storage().data(), from.storage().nbytes());
}

void accumulate(const at::Tensor& to, const at::Tensor& from, float alpha) {
  SNUG_CHECK(to.numel() == from.numel(), "{} elements into {}", from.numel(), to.numel());
  run_on(
      to,
      [&] {
        kernels::cpu::accumulate(to.mutable_data_ptr(), to_scalar(to.scalar_type()),
                                 from.const_data_ptr(), to_scalar(from.scalar_type()), to.numel(),
                                 alpha);
      },
      [&] { to.add_(from.view_as(to), alpha); });
}

void fill(const at::Tensor& x, float value) {
  run_on(
      x,
      [&] {
        kernels::cpu::fill(x.mutable_data_ptr(), to_scalar(x.scalar_type()), value, x.numel());
      },
      [&] { x.fill_(value); });
}

void scale_in_place(const at::Tensor& x, float factor) {
  run_on(
      x,
      [&] {
        kernels::cpu::scale(x.mutable_data_ptr(), to_scalar(x.scalar_type()), factor, x.numel());
      },
      [&] { x.mul_(factor); });
}

double sum_of_squares(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return 0.0;
  std::vector<kernels::cpu::TensorView> views;
  for (const at::Tensor& t : tensors)
    views.push_back({t.numel(), read_pointer(t), to_scalar(t.scalar_type())});
  const at::Tensor& like = tensors.front();
  if (kernel_device(like) != at::kCUDA)
    return like.is_meta() ? 1.0 : kernels::cpu::sum_of_squares(views).value;
  const at::Tensor sum = at::empty({1}, like.options().dtype(at::kDouble));
  with_workspace(like, cuda::sum_of_squares_workspace_bytes(views), [&](void* scratch) {
    cuda::sum_of_squares(views, sum.mutable_data_ptr<double>(), scratch);
  });
  return like.is_meta() ? 1.0 : sum.item<double>();
}

}  // namespace snug::ops
