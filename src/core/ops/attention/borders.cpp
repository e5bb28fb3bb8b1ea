// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention/borders.h"

#include "core/ops/device/device.h"
#include "core/ops/device/host_waits.h"

namespace snug::ops {

Borders Borders::even(at::Tensor on_device, int64_t length) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i < on_device.size(0); ++i)
    values.push_back(static_cast<int32_t>(i * length));
  Borders result(std::move(on_device), values);
  result.even_length_ = length;
  return result;
}

std::shared_ptr<const std::vector<int32_t>> Borders::host() const {
  if (values_ != nullptr) return values_;
  note_host_wait(kernel_device(*this));
  if (is_meta()) return std::make_shared<const std::vector<int32_t>>();
  const at::Tensor there = cpu();
  const auto* values = there.const_data_ptr<int32_t>();
  return std::make_shared<const std::vector<int32_t>>(values, values + there.numel());
}

}  // namespace snug::ops
