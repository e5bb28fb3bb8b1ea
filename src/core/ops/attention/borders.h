// The boundaries of packed documents: S + 1 offsets from 0, int32 on the device for kernels. The
// host keeps a copy, so that code there need not read them back, which would block the program.
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
  // From values known only on the device: host() reads them back.
  Borders(at::Tensor on_device)  // NOLINT(google-explicit-constructor): it is the tensor
      : at::Tensor(std::move(on_device)) {}
  Borders(at::Tensor on_device, const std::vector<int32_t>& values)
      : at::Tensor(std::move(on_device)),
        values_(std::make_shared<const std::vector<int32_t>>(values)) {}

  // Borders of documents with `length` rows each.
  static Borders even(at::Tensor on_device, int64_t length);

  // The same boundaries with another device tensor.
  Borders with(at::Tensor on_device) const {
    Borders other(std::move(on_device));
    other.values_ = values_;
    other.even_length_ = even_length_;
    return other;
  }

  // Rows of each document where all are made to have as many; else 0, even if they happen to.
  int64_t even_length() const { return even_length_; }

  // The values on the host; null on meta if they were not given. On cuda the host waits if they
  // were not given.
  std::shared_ptr<const std::vector<int32_t>> host() const;

 private:
  std::shared_ptr<const std::vector<int32_t>> values_;
  int64_t even_length_ = 0;
};

}  // namespace snug::ops
