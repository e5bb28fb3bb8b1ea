// Copies between a device and the host memory beside it, side by side with what the device
// computes. Copies that are started happen in order, once the device has done what it was asked to
// do before; whoever uses their result waits for them, which holds up what the device is asked to
// do next and not the program. On cuda that is a stream of its own, and events; a cpu copies at
// once.
//
// Memory of the device that copies read or write must stay until they have been waited for. Host
// memory in which copies land may go before: it comes from a pool whose blocks are written by later
// copies first (memory::HostUse), which is checked. Host memory that the program writes, weights at
// their home, is not written again before copies that read it have been waited for on the host.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace snug::ops {

struct Copy {
  at::Tensor to;
  at::Tensor from;
  bool whole_storage = false;  // all bytes, whatever part of them the tensors view
};

class CopyStream {
 public:
  // Copies that were started together. An empty ticket is for none.
  struct Batch;
  using Ticket = std::shared_ptr<const Batch>;

  explicit CopyStream(at::Device device);
  ~CopyStream();
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  Ticket start(std::vector<Copy> copies);
  // What the device computes from here on comes after these copies and all before them.
  void wait(const Ticket& ticket);
  // Returns when they are done.
  void wait_on_host(const Ticket& ticket);
  // All that were started.
  void wait_for_all();
  void wait_for_all_on_host();

  // On a cpu: copies happen no earlier than they are waited for, as bad luck could have it on a
  // device. For tests: who does not wait reads what is not there.
  void set_late(bool late) { late_ = late; }

 private:
  void run_until(const Batch* last);

  at::Device device_;
  std::optional<c10::Stream> side_;  // cuda
  Ticket newest_;
  bool late_ = false;
  std::deque<std::shared_ptr<Batch>> waiting_;  // copies that are late
};

}  // namespace snug::ops
