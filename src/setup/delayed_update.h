// Delayed parameter update (ZeRO-Offload, Ren et al. 2021): the host applies step k's gradients
// while the device runs step k+1 with the weights that step k-1 left. The device's weights are thus
// one update late, and the host's work costs no time as long as it is the shorter.
//
// The optimizer sees aliases of the weights at home: the gradients that it works on are theirs, so
// that the next step can gather its own at home meanwhile. They are freed by wait() on the calling
// thread, so that what is live when does not depend on how fast the host is.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <future>
#include <vector>

#include "optim/optimizer.h"

namespace snug::setup {

class DelayedUpdate {
 public:
  // `aliases` are what the optimizer was made for, in the order of `homes`.
  DelayedUpdate(optim::Optimizer& optimizer, std::vector<optim::NamedTensor> homes,
                std::vector<optim::NamedTensor> aliases, bool in_background)
      : optimizer_(optimizer),
        homes_(std::move(homes)),
        aliases_(std::move(aliases)),
        in_background_(in_background) {}
  ~DelayedUpdate();
  DelayedUpdate(const DelayedUpdate&) = delete;
  DelayedUpdate& operator=(const DelayedUpdate&) = delete;

  // Takes the gradients at home and starts one step with them. The one before must be over.
  void start(const optim::StepOptions& options);
  // Returns when the weights at home, and the states, are those after the update that was started
  // last. Throws what it threw.
  void wait();

  // Where there is no second processor to gain from, an update is run by start() itself.
  void set_in_background(bool in_background) { in_background_ = in_background; }

  // Other tensors with the weights' memory.
  static std::vector<optim::NamedTensor> aliases_of(const std::vector<optim::NamedTensor>& homes);

 private:
  void run(const optim::StepOptions& options);

  optim::Optimizer& optimizer_;
  std::vector<optim::NamedTensor> homes_;
  std::vector<optim::NamedTensor> aliases_;
  bool in_background_;
  std::future<void> running_;
};

}  // namespace snug::setup
