// Where documents that are packed one after another begin and end: S + 1 numbers from 0, int32 on
// the device for kernels. The host makes them, and keeps them: who cuts work by documents there
// need not read them back, which would hold up the program.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace snug::ops {

class Borders : public at::Tensor {
 public:
  Borders() = default;
  // Of numbers that are known on the device alone: host() reads them back.
  Borders(at::Tensor on_device)  // NOLINT(google-explicit-constructor): it is the tensor
      : at::Tensor(std::move(on_device)) {}
  Borders(at::Tensor on_device, const std::vector<int32_t>& values)
      : at::Tensor(std::move(on_device)),
        values_(std::make_shared<const std::vector<int32_t>>(values)) {}

  // The same documents in another tensor.
  Borders with(at::Tensor on_device) const {
    Borders other(std::move(on_device));
    other.values_ = values_;
    return other;
  }

  // The numbers; on meta none where they were not given. On cuda the host waits for those.
  std::shared_ptr<const std::vector<int32_t>> host() const;

 private:
  std::shared_ptr<const std::vector<int32_t>> values_;
};

}  // namespace snug::ops
