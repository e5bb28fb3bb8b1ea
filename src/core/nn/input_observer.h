// Shows what linear layers read, as an importance matrix needs it. A layer asks for the observer of
// its thread, so that no model knows of it and a pass without one pays for one pointer's load.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace snug::nn {

class Linear;

// While it lives, linear layers that run on this thread and are not split among ranks call `see`
// with each input (N, in), behind its activation.
class InputObserver {
 public:
  using See = std::function<void(const Linear& layer, const at::Tensor& x)>;
  explicit InputObserver(See see);
  ~InputObserver();
  InputObserver(const InputObserver&) = delete;
  InputObserver& operator=(const InputObserver&) = delete;

  // Null: none.
  static const InputObserver* current();
  void show(const Linear& layer, const at::Tensor& x) const { see_(layer, x); }

 private:
  See see_;
  const InputObserver* before_;
};

}  // namespace snug::nn
