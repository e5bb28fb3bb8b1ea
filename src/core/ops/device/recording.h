// Work of the device that is queued often: recorded once (a CUDA graph), then launched with one
// call. On meta the work runs when it is recorded, and launching does nothing.
//
// What differs from one time to the next must come from the device's memory: addresses and the
// host's numbers stay what they were when the work was recorded. So recorded work may not wait for
// the device, nor copy from or to the host.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <string_view>

namespace snug::ops {

class Recording {
 public:
  // Calls `work` and records what it queues on the current stream, which is not done. On cuda that
  // stream may not be the default one (cuda.h: use_own_stream). Memory that it allocates stays
  // taken until all recordings are gone (memory::Ledger::begin_recording). What `work` throws comes
  // out.
  Recording(c10::Device device, const std::function<void()>& work);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // On the current stream.
  void launch() const;

 private:
  c10::Device device_;
  void* graph_ = nullptr;
};

// Throws UserError if this thread is recording work; `what` cannot be recorded, and why.
void refuse_recording(std::string_view what);

}  // namespace snug::ops
