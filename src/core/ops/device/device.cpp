// SPDX-License-Identifier: Apache-2.0
#include "core/ops/device/device.h"

#include <ATen/ops/empty_like.h>

#include <unordered_map>

#include "base/error.h"
#include "core/memory/guards.h"
#include "core/memory/placement.h"
#include "core/ops/elementwise.h"

namespace snug::ops {
namespace {

thread_local at::DeviceType stand_in = at::kCPU;
thread_local std::unordered_map<const c10::TensorImpl*, at::Tensor> gradient_slots;

}  // namespace

at::DeviceType kernel_device(const at::Tensor& tensor) {
  const at::DeviceType device = kernel_device(tensor.device());
  const bool is_planned = tensor.is_meta() && device == at::kCUDA;
  return is_planned && memory::is_on_host(tensor) ? at::kCPU : device;
}
at::DeviceType kernel_device(at::Device device) {
  return device.is_meta() ? stand_in : device.type();
}

bool calls_cuda(const at::Tensor& like) {
  return kernel_device(like) == at::kCUDA && (like.is_cuda() || counts_work());
}

void* meta_address() {
  alignas(64) static char nothing[64];
  return counts_work() ? nothing : nullptr;
}

StandInGuard::StandInGuard(at::DeviceType device) : saved_(stand_in) { stand_in = device; }
StandInGuard::~StandInGuard() { stand_in = saved_; }

kernels::Scalar to_scalar(at::ScalarType type) {
  using kernels::Scalar;
  if (type == at::kFloat) return Scalar::F32;
  if (type == at::kBFloat16) return Scalar::BF16;
  if (type == at::kHalf) return Scalar::F16;
  throw InternalError(fmt::format("no kernel for tensors of type {}", c10::toString(type)));
}

GradientBuffer gradient_buffer(const at::Tensor& parameter) {
  const at::Tensor& gradient = parameter.grad();
  if (gradient.defined()) return {gradient, false};
  if (at::Tensor slot = take_gradient_slot(parameter); slot.defined()) {
    parameter.mutable_grad() = std::move(slot);
    return {parameter.grad(), true};
  }
  const memory::CategoryGuard category(memory::Category::Gradients);
  parameter.mutable_grad() = at::empty_like(parameter, parameter.options().requires_grad(false));
  return {parameter.grad(), true};
}

void set_gradient_slot(const at::Tensor& parameter, at::Tensor slot) {
  if (slot.defined())
    gradient_slots[parameter.unsafeGetTensorImpl()] = std::move(slot);
  else
    gradient_slots.erase(parameter.unsafeGetTensorImpl());
}

at::Tensor take_gradient_slot(const at::Tensor& parameter) {
  auto slot = gradient_slots.extract(parameter.unsafeGetTensorImpl());
  return slot ? std::move(slot.mapped()) : at::Tensor();
}

void add_to_gradient(const at::Tensor& parameter, const at::Tensor& gradient) {
  const GradientBuffer buffer = gradient_buffer(parameter);
  if (buffer.fresh)
    copy(buffer.tensor, gradient.view_as(buffer.tensor));
  else
    accumulate(buffer.tensor, gradient);
}

}  // namespace snug::ops
