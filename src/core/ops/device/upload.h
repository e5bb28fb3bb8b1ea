// Asynchronous copies of host data to a device: through pinned host memory, in the order of the
// device's work, without waiting. On a cpu the tensors are filled directly.
//
// The upload owns the pinned memory, which must not change while it is read: keep the upload as
// long as its tensors are in use. Its destructor waits for copies that are not complete.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>
#include <vector>

namespace snug::ops {

class Upload {
 public:
  explicit Upload(at::Device device) : device_(device) {}
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // A new tensor on the device. `values` may be freed when this returns; on meta they are not read.
  at::Tensor tensor(const void* values, at::IntArrayRef sizes, at::ScalarType type);

 private:
  at::Device device_;
  std::vector<at::Tensor> staged_;  // in host memory
  std::optional<c10::Event> sent_;  // cuda: all copies so far
};

}  // namespace snug::ops
