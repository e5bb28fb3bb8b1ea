// What the host knows, on its way to a device: copied into host memory that the device reads by
// itself, and from there in the order of what the device computes. Nobody waits. A cpu's tensors
// are filled at once, and no second copy is there.
//
// The host memory is the upload's own, so that nothing else is written to it while it is read: the
// upload lives as long as what is computed with its tensors, and waits at its end where that has
// been asked for and has not come so far.
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

  // A new tensor on the device. `values` may go when this returns; on meta nobody reads them.
  at::Tensor tensor(const void* values, at::IntArrayRef sizes, at::ScalarType type);

 private:
  at::Device device_;
  std::vector<at::Tensor> staged_;  // in host memory
  std::optional<c10::Event> sent_;  // cuda: all copies so far
};

}  // namespace snug::ops
