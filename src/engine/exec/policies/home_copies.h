// Copies of weights from their homes in host memory, or in a file there (memory::DiskFile), to the
// device. A GPU copies beside its computation only from pinned memory, which a mapped file is not:
// weights in a file go through one of two pinned buffers, which the program fills while the GPU is
// still at work on what was queued before.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <vector>

#include "core/nn/parameter.h"
#include "core/ops/device/copy_stream.h"

namespace snug::exec {

class HomeCopies {
 public:
  // `batches`: what start() may get, so that the buffers have room for any of them.
  HomeCopies(ops::CopyStream& copies, const std::vector<std::vector<nn::Parameter*>>& batches);

  // Starts copies of the homes to the values, which have memory.
  ops::CopyStream::Ticket start(const std::vector<const nn::Parameter*>& parameters);

 private:
  struct Buffer {
    at::Tensor bytes;              // undefined: copies go straight from the homes
    ops::CopyStream::Ticket read;  // the copies that read it
  };

  ops::CopyStream& copies_;
  std::array<Buffer, 2> buffers_;
  size_t next_ = 0;
};

// Hints to the system that homes in a file are read soon.
void read_ahead(const std::vector<nn::Parameter*>& parameters);

// Starts to copy these weights from their host copies to the device.
void send_weights_from_home(const std::vector<nn::Parameter*>& parameters, ops::CopyStream& copies);

}  // namespace snug::exec
