// Delayed parameter update (ZeRO-Offload, Ren et al. 2021): the host applies step k's gradients
// while the device runs step k+1 with the weights that step k-1 left. The device's weights are thus
// one update late, and the update costs no time as long as it is shorter than the step.
//
// The optimizer works on aliases of the host copies, which hold the gradients in use, so that the
// next step can collect its gradients on the host copies meanwhile. wait() frees the aliases'
// gradients on the calling thread, so that memory does not depend on timing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <future>
#include <vector>

#include "core/optim/optimizer.h"

namespace snug::engine {

class DelayedUpdate {
 public:
  // `aliases`: the optimizer's parameters, in the order of `homes`, the host copies.
  DelayedUpdate(optim::Optimizer& optimizer, std::vector<optim::NamedTensor> homes,
                std::vector<optim::NamedTensor> aliases, bool in_background)
      : optimizer_(optimizer),
        homes_(std::move(homes)),
        aliases_(std::move(aliases)),
        in_background_(in_background) {}
  DelayedUpdate(const DelayedUpdate&) = delete;
  DelayedUpdate& operator=(const DelayedUpdate&) = delete;

  // Takes the gradients of the host copies and starts an update with them. The previous update must
  // be complete.
  void start(const optim::StepOptions& options);
  // Waits until the last update is complete. Throws what it threw.
  void wait();

  // Whether an update was started that nobody has waited for.
  bool is_under_way() const { return running_.valid(); }

  // If false, start() runs the update itself; for machines without a second processor.
  void set_in_background(bool in_background) { in_background_ = in_background; }

  // New tensors that share the host copies' storage.
  static std::vector<optim::NamedTensor> aliases_of(const std::vector<optim::NamedTensor>& homes);

 private:
  void run(const optim::StepOptions& options);

  optim::Optimizer& optimizer_;
  std::vector<optim::NamedTensor> homes_;
  std::vector<optim::NamedTensor> aliases_;
  bool in_background_;
  std::future<void> running_;  // last: its destructor waits, while what it works with is there
};

}  // namespace snug::engine
