// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention/borders.h"

#include "core/ops/device/device.h"
#include "core/ops/device/host_waits.h"

namespace snug::ops {

std::shared_ptr<const std::vector<int32_t>> Borders::host() const {
  if (values_ != nullptr) return values_;
  note_host_wait(kernel_device(*this));
  if (is_meta()) return std::make_shared<const std::vector<int32_t>>();
  const at::Tensor there = cpu();
  const auto* values = there.const_data_ptr<int32_t>();
  return std::make_shared<const std::vector<int32_t>>(values, values + there.numel());
}

}  // namespace snug::ops
