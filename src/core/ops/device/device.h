// Device dispatch and gradient buffers for operators. On `meta` nothing is computed, but the same
// buffers are allocated as on the planned device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "core/kernels/scalar.h"
#include "core/ops/device/work.h"

namespace snug::ops {

kernels::Scalar to_scalar(at::ScalarType type);

// The device whose kernels an operator uses for this tensor: cpu or cuda. For a meta tensor, the
// device of the StandInGuard in scope, or cpu; cpu too for one that is planned on the host.
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

// Whether an operator on this tensor calls the kernels of cuda.h: it is there, or would be in a
// step whose work is counted.
bool calls_cuda(const at::Tensor& like);

// Runs the function for the tensor's device; on meta neither, or the one of cuda where work is
// counted. On cuda it may call libtorch's operators.
template <class Cpu, class Cuda>
void run_on(const at::Tensor& like, Cpu cpu, Cuda cuda) {
  if (calls_cuda(like)) {
    const Unnoticed unnoticed;
    cuda();
  } else if (!like.is_meta()) {
    cpu();
  }
}

// What stands for the address of a tensor on meta: null, or where work is counted, some address.
void* meta_address();

// A tensor's address for a kernel's arguments; null for an undefined tensor.
template <class T = void>
const T* read_pointer(const at::Tensor& t) {
  if (!t.defined()) return nullptr;
  return static_cast<const T*>(t.is_meta() ? meta_address() : t.const_data_ptr());
}
template <class T = void>
T* write_pointer(const at::Tensor& t) {
  if (!t.defined()) return nullptr;
  return static_cast<T*>(t.is_meta() ? meta_address() : t.mutable_data_ptr());
}

// Scratch memory for a kernel, counted by the ledger. `run` gets its address; on meta it is called
// only where work is counted.
template <class Run>
void with_workspace(const at::Tensor& like, int64_t bytes, Run run) {
  const at::Tensor scratch = at::empty({bytes}, like.options().dtype(at::kByte));
  if (!like.is_meta() || calls_cuda(like)) run(write_pointer(scratch));
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
