// Asynchronous copies between a device and host memory, concurrent with the device's computation.
// Copies run in the order of their start, after the work already queued on the device. wait() makes
// later device work wait for a copy, not the program. On cuda this is a separate stream with
// events; a cpu copies at once.
//
// Device memory that a copy reads or writes must stay allocated until the copy has been waited for.
// Host memory that a copy writes may be freed earlier: it comes from a pool whose blocks are next
// written by later copies (memory::HostUse::Landing), which is checked. Host memory that the
// program writes (host copies of weights) must not be written again before wait_on_host() for the
// copies that read it.
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
  bool whole_storage = false;  // copy the whole storage, not only the tensor's view
};

class CopyStream {
 public:
  // Copies that were started together; an empty ticket: none.
  struct Batch;
  using Ticket = std::shared_ptr<const Batch>;

  explicit CopyStream(at::Device device);
  // Waits on the host: memory that the copies read is often freed next, and written again.
  ~CopyStream();
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  Ticket start(std::vector<Copy> copies);
  // Later device work runs after these copies and all earlier ones.
  void wait(const Ticket& ticket);
  // Blocks until they are complete.
  void wait_on_host(const Ticket& ticket);
  // The same for all copies.
  void wait_for_all();
  void wait_for_all_on_host();

  // For tests on a cpu: delays copies until they are waited for, so that a missing wait shows.
  void set_late(bool late) { late_ = late; }

 private:
  void run_until(const Batch* last);

  at::Device device_;
  std::optional<c10::Stream> side_;  // cuda
  Ticket newest_;
  bool late_ = false;
  std::deque<std::shared_ptr<Batch>> waiting_;  // delayed copies
};

}  // namespace snug::ops
