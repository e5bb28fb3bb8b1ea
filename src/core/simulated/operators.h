// libtorch's operators on the simulated device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "core/kernels/simulated/simulation.h"

namespace snug::simulated {

// CPU memory of this thread is not counted in the program's ledger meanwhile. (The device's
// thread's never is.)
class Uncounted {
 public:
  Uncounted();
  ~Uncounted();
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;

 private:
  bool saved_;
};

// A tensor of the cpu over the same memory, which only the device's thread may touch; it does not
// keep the memory alive. One of the cpu is copied.
at::Tensor on_cpu(const at::Tensor& tensor);

// Each stretch of memory that such a tensor reaches is read or written by the current work.
void touch_tensor(const at::Tensor& on_cpu, kernels::simulated::Use use);

// Queues work on the current stream. `name` may be short-lived.
void enqueue_operator(const std::string& name, std::function<void()> work);

}  // namespace snug::simulated
