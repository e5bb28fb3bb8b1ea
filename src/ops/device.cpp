// SPDX-License-Identifier: Apache-2.0
#include "ops/device.h"

#include <ATen/ops/empty_like.h>

#include "base/error.h"
#include "memory/guards.h"
#include "ops/elementwise.h"

namespace snug::ops {
namespace {

thread_local at::DeviceType stand_in = at::kCPU;

}  // namespace

at::DeviceType kernel_device(const at::Tensor& tensor) {
  return tensor.is_meta() ? stand_in : tensor.device().type();
}

StandInGuard::StandInGuard(at::DeviceType device) : saved_(stand_in) { stand_in = device; }
StandInGuard::~StandInGuard() { stand_in = saved_; }

kernels::cpu::Scalar to_scalar(at::ScalarType type) {
  using kernels::cpu::Scalar;
  if (type == at::kFloat) return Scalar::F32;
  if (type == at::kBFloat16) return Scalar::BF16;
  if (type == at::kHalf) return Scalar::F16;
  throw InternalError(fmt::format("no kernel for tensors of type {}", c10::toString(type)));
}

GradientBuffer gradient_buffer(const at::Tensor& parameter) {
  const at::Tensor& gradient = parameter.grad();
  if (gradient.defined()) return {gradient, false};
  const memory::CategoryGuard category(memory::Category::Gradients);
  parameter.mutable_grad() = at::empty_like(parameter, parameter.options().requires_grad(false));
  return {parameter.grad(), true};
}

void add_to_gradient(const at::Tensor& parameter, const at::Tensor& gradient) {
  const GradientBuffer buffer = gradient_buffer(parameter);
  if (buffer.fresh) fill(buffer.tensor, 0);
  accumulate(buffer.tensor, gradient);
}

}  // namespace snug::ops
