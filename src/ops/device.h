// What the operators need to know about where they run. On `meta` nothing is computed, but the
// same buffers are asked for as on the device that is being planned for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "kernels/cpu/scalar.h"

namespace snug::ops {

kernels::cpu::Scalar to_scalar(at::ScalarType type);

// Whose kernels and whose memory needs an operator on this tensor has: cpu or cuda. A meta tensor
// stands for one on the device that the guard in scope names, cpu without one.
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

// Runs what computes on the tensor's device; on meta neither.
template <class Cpu, class Cuda>
void run_on(const at::Tensor& like, Cpu cpu, Cuda cuda) {
  if (like.is_cuda())
    cuda();
  else if (!like.is_meta())
    cpu();
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

// Scratch for a kernel, counted by the ledger. `run` gets its address; on meta it is not called.
template <class Run>
void with_workspace(const at::Tensor& like, int64_t bytes, Run run) {
  const at::Tensor scratch = at::empty({bytes}, like.options().dtype(at::kByte));
  if (!like.is_meta()) run(scratch.mutable_data_ptr());
}

// The parameter's gradient buffer, created (tagged as gradients) when it has none. `fresh` says
// that its content is undefined: the first writer overwrites instead of adding.
struct GradientBuffer {
  at::Tensor tensor;
  bool fresh;
};
GradientBuffer gradient_buffer(const at::Tensor& parameter);

// Where the calling thread makes the parameter's gradient buffer, instead of in new memory; an
// undefined slot takes that back. A slot is used once.
void set_gradient_slot(const at::Tensor& parameter, at::Tensor slot);
// What was set and has not been used; undefined: nothing.
at::Tensor take_gradient_slot(const at::Tensor& parameter);

// Adds a whole gradient of the parameter's shape, of any type, to its buffer.
void add_to_gradient(const at::Tensor& parameter, const at::Tensor& gradient);

}  // namespace snug::ops
