// Device dispatch and gradient buffers for operators. On `meta` nothing is computed, but the same
// buffers are allocated as on the planned device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "core/kernels/scalar.h"

namespace snug::ops {

kernels::Scalar to_scalar(at::ScalarType type);

// The device whose kernels an operator uses for this tensor: cpu or cuda. For a meta tensor, the
// device of the StandInGuard in scope, or cpu.
at::DeviceType kernel_device(const at::Tensor& tensor);
at::DeviceType kernel_device(at::Device device);

class StandInGuard {
 public:
  explicit StandInGuard(at::DeviceType device);
  ~StandInGuard();
  StandInGuard(const StandInGuard&) = delete;
  StandInGuard& operator=(const StandInGuard&) = delete;

 private:
  at::DeviceType saved_;
};

// What happens in its scope changes tensors without autograd's knowledge, as kernels do that take
// their addresses: libtorch would count changes of tensors that a backward needs, and refuse it.
using Unnoticed = at::AutoDispatchBelowADInplaceOrView;

// Runs the function for the tensor's device; on meta neither. On cuda it may call libtorch's
// operators.
template <class Cpu, class Cuda>
void run_on(const at::Tensor& like, Cpu cpu, Cuda cuda) {
  if (like.is_cuda()) {
    const Unnoticed unnoticed;
    cuda();
  } else if (!like.is_meta()) {
    cpu();
  }
}

// A tensor's address for a kernel's arguments; null on meta and for an undefined tensor.
template <class T = void>
const T* read_pointer(const at::Tensor& t) {
  return !t.defined() || t.is_meta() ? nullptr : static_cast<const T*>(t.const_data_ptr());
}
template <class T = void>
T* write_pointer(const at::Tensor& t) {
  return !t.defined() || t.is_meta() ? nullptr : static_cast<T*>(t.mutable_data_ptr());
}

// Scratch memory for a kernel, counted by the ledger. `run` gets its address; it is not called on
// meta.
template <class Run>
void with_workspace(const at::Tensor& like, int64_t bytes, Run run) {
  const at::Tensor scratch = at::empty({bytes}, like.options().dtype(at::kByte));
  if (!like.is_meta()) run(scratch.mutable_data_ptr());
}

// The parameter's gradient buffer, created (tagged as gradients) when it has none. If `fresh`, its
// content is undefined: the first writer overwrites it instead of adding.
struct GradientBuffer {
  at::Tensor tensor;
  bool fresh;
};
GradientBuffer gradient_buffer(const at::Tensor& parameter);

// Makes the calling thread create the parameter's gradient buffer in `slot` instead of new memory,
// once; an undefined slot undoes it.
void set_gradient_slot(const at::Tensor& parameter, at::Tensor slot);
// Returns and clears a slot that has not been used; undefined if there is none.
at::Tensor take_gradient_slot(const at::Tensor& parameter);

// Adds a whole gradient of the parameter's shape, of any type, to its buffer.
void add_to_gradient(const at::Tensor& parameter, const at::Tensor& gradient);

}  // namespace snug::ops
