// SPDX-License-Identifier: Apache-2.0
#include "core/ops/elementwise.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "core/kernels/activation.h"
#include "core/kernels/cpu/elementwise.h"
#include "core/kernels/optimizers.h"
#include "core/memory/placement.h"
#include "core/ops/device/cuda.h"
#include "core/ops/device/device.h"
#include "core/ops/device/host_waits.h"

namespace snug::ops {
namespace {

// A tensor of bytes over the whole storage.
at::Tensor storage_bytes(const at::Tensor& t) {
  const auto bytes = static_cast<int64_t>(t.storage().nbytes());
  return at::empty({0}, t.options().dtype(at::kByte)).set_(t.storage(), 0, {bytes}, {1});
}

// Whether one tensor is in host memory and the other on a GPU, real or planned.
bool crosses(const at::Tensor& to, const at::Tensor& from) {
  if (kernel_device(to) != at::kCUDA && kernel_device(from) != at::kCUDA) return false;
  if (!to.is_meta()) return to.is_cuda() != from.is_cuda();
  return memory::is_on_host(to) != memory::is_on_host(from);
}

// The row stride of a gate's two operands, which may be the halves of one tensor.
int64_t row_stride(const at::Tensor& gate, const at::Tensor& up) {
  const bool alike = gate.stride(0) == up.stride(0) || gate.size(0) <= 1;
  SNUG_CHECK(alike && gate.stride(1) == 1 && up.stride(1) == 1,
             "a gate with rows {} apart, and its operand {}", gate.stride(0), up.stride(0));
  return gate.stride(0);
}

void copy_on_cpu(const at::Tensor& to, const at::Tensor& from) {
  kernels::cpu::cast(from.const_data_ptr(), to_scalar(from.scalar_type()), to.mutable_data_ptr(),
                     to_scalar(to.scalar_type()), to.numel());
}

// Between host and cuda: copies in the host's type and converts on the device. libtorch would
// convert on the host and wait, or need device memory of the whole tensor's size.
void copy_and_convert(const at::Tensor& to, const at::Tensor& from, Wait wait) {
  constexpr int64_t kScratchBytes = int64_t{8} << 20;
  const bool arrives = to.is_meta() ? memory::is_on_host(from) : to.is_cuda();
  const at::Tensor& here = arrives ? from : to;
  const at::Tensor& there = arrives ? to : from;
  const int64_t count = to.numel();
  const int64_t step = std::min(count, kScratchBytes / here.element_size());
  const at::Tensor scratch = at::empty({step}, there.options().dtype(here.scalar_type()));
  if (wait == Wait::Yes) note_host_wait(at::kCUDA);
  if (to.is_meta() && !counts_work()) return;
  const Unnoticed unnoticed;
  const at::Tensor flat_to = to.view({-1}), flat_from = from.view({-1});
  for (int64_t begin = 0; begin < count; begin += step) {
    const int64_t end = std::min(begin + step, count);
    const at::Tensor between = scratch.slice(0, 0, end - begin);
    const bool last = end == count;
    between.copy_(flat_from.slice(0, begin, end), /*non_blocking=*/wait == Wait::No);
    flat_to.slice(0, begin, end).copy_(between, /*non_blocking=*/wait == Wait::No || !last);
  }
}

}  // namespace

at::Tensor activate(const at::Tensor& x, Activation activation) {
  at::Tensor out = at::empty_like(x);
  const kernels::ActivationForward args{.activation = activation,
                                        .type = to_scalar(x.scalar_type()),
                                        .count = x.numel(),
                                        .x = read_pointer(x),
                                        .y = write_pointer(out)};
  run_on(
      x, [&] { kernels::cpu::activation_forward(args); }, [&] { cuda::activation_forward(args); });
  return out;
}

void activation_backward_in_place(const at::Tensor& d_out, const at::Tensor& x,
                                  Activation activation, Value value) {
  const kernels::ActivationBackward args{.activation = activation,
                                         .type = to_scalar(x.scalar_type()),
                                         .count = x.numel(),
                                         .dy = read_pointer(d_out),
                                         .x = read_pointer(x),
                                         .dx = write_pointer(d_out),
                                         .y = value == Value::Again ? write_pointer(x) : nullptr};
  run_on(
      x, [&] { kernels::cpu::activation_backward(args); },
      [&] { cuda::activation_backward(args); });
}

at::Tensor gated(const at::Tensor& gate, const at::Tensor& up, const Gate& of) {
  at::Tensor out = at::empty(gate.sizes(), gate.options());
  const kernels::GatedForward args{.activation = of.activation,
                                   .clamp = of.clamp,
                                   .type = to_scalar(gate.scalar_type()),
                                   .rows = gate.size(0),
                                   .features = gate.size(1),
                                   .gate = read_pointer(gate),
                                   .up = read_pointer(up),
                                   .y = write_pointer(out),
                                   .input_stride = row_stride(gate, up)};
  run_on(
      gate, [&] { kernels::cpu::gated_forward(args); }, [&] { cuda::gated_forward(args); });
  return out;
}

void gated_backward_in_place(const at::Tensor& d_out, const at::Tensor& gate, const at::Tensor& up,
                             const Gate& of, Value value) {
  const kernels::GatedBackward args{.activation = of.activation,
                                    .clamp = of.clamp,
                                    .type = to_scalar(gate.scalar_type()),
                                    .rows = gate.size(0),
                                    .features = gate.size(1),
                                    .dy = read_pointer(d_out),
                                    .gate = read_pointer(gate),
                                    .up = read_pointer(up),
                                    .dgate = write_pointer(gate),
                                    .dup = write_pointer(up),
                                    .y = value == Value::Again ? write_pointer(d_out) : nullptr,
                                    .input_stride = row_stride(gate, up)};
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
  const bool over_link = crosses(to, from);
  if (over_link && to.scalar_type() != from.scalar_type()) return copy_and_convert(to, from, wait);
  if (over_link && wait == Wait::Yes) note_host_wait(at::kCUDA);
  if (calls_cuda(to) || calls_cuda(from)) {
    const Unnoticed unnoticed;
    to.copy_(from, /*non_blocking=*/wait == Wait::No);
  } else if (!to.is_meta() && from.scalar_type() == at::kByte) {  // a quantized weight
    std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
  } else if (!to.is_meta()) {
    copy_on_cpu(to, from);
  }
}

void copy_storage(const at::Tensor& to, const at::Tensor& from, Wait wait) {
  SNUG_CHECK(to.storage().nbytes() == from.storage().nbytes(), "{} bytes into {}",
             from.storage().nbytes(), to.storage().nbytes());
  if (crosses(to, from) && wait == Wait::Yes) note_host_wait(at::kCUDA);
  if (calls_cuda(to) || calls_cuda(from))
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

void SumOfSquares::add(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return;
  std::vector<kernels::TensorView> views;
  for (const at::Tensor& t : tensors)
    views.push_back({t.numel(), read_pointer(t), to_scalar(t.scalar_type())});
  const at::Tensor& like = tensors.front();
  // Sums of tensors that are updated on the host are computed there.
  if (kernel_device(like) != at::kCUDA) {
    on_host_ += like.is_meta() ? 1.0 : kernels::cpu::sum_of_squares(views).value;
    return;
  }
  const at::Tensor sum = at::empty({1}, like.options().dtype(at::kDouble));
  with_workspace(like, cuda::sum_of_squares_workspace_bytes(views), [&](void* scratch) {
    cuda::sum_of_squares(views, write_pointer<double>(sum), scratch);
  });
  if (on_device_.defined())
    on_device_.add_(sum);
  else
    on_device_ = sum;
}

double SumOfSquares::value() {
  double sum = std::exchange(on_host_, 0.0);
  if (!on_device_.defined()) return sum;
  sum += on_device_.is_meta() ? 1.0 : 0.0;
  return sum + read_number(std::exchange(on_device_, {}));
}

double sum_of_squares(const std::vector<at::Tensor>& tensors) {
  SumOfSquares sum;
  sum.add(tensors);
  return sum.value();
}

}  // namespace snug::ops
