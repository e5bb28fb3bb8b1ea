// SPDX-License-Identifier: Apache-2.0
#include "core/ops/device/host_waits.h"

#include "base/error.h"
#include "core/ops/device/device.h"
#include "core/ops/device/recording.h"

namespace snug::ops {
namespace {

thread_local int64_t waits_so_far = 0;

}  // namespace

int64_t num_host_waits() { return waits_so_far; }

// A cpu computes synchronously, so there is no wait.
void note_host_wait(at::DeviceType kernels_of) {
  if (kernels_of != at::kCUDA) return;
  refuse_recording("with this model the host waits for the GPU within a micro-batch");
  ++waits_so_far;
}

double read_number(const at::Tensor& number) {
  note_host_wait(kernel_device(number));
  return number.is_meta() ? 0.0 : number.item().toDouble();
}

std::vector<double> read_numbers(const at::Tensor& numbers) {
  note_host_wait(kernel_device(numbers));
  std::vector<double> result(static_cast<size_t>(numbers.numel()));
  if (numbers.is_meta()) return result;
  SNUG_CHECK(numbers.scalar_type() == at::kFloat, "numbers of type {} to read",
             c10::toString(numbers.scalar_type()));
  const at::Tensor here = numbers.is_cpu() ? numbers : numbers.cpu();
  const auto* const first = here.const_data_ptr<float>();
  result.assign(first, first + here.numel());
  return result;
}

}  // namespace snug::ops
