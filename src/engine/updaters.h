// Updates by the whole list of parameters: after the backward, or beside the next step. The third
// way, unit by unit within the backward, is a policy.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <future>
#include <vector>

#include "core/optim/optimizer.h"
#include "engine/exec/updater.h"

namespace snug::engine {

struct Engine;

class UpdateAfterBackward : public exec::Updater {
 public:
  explicit UpdateAfterBackward(const Engine& engine) : engine_(engine) {}

  double sum_of_squares() override;
  void update(const optim::StepOptions& options) override;

 protected:
  const Engine& engine_;
};

// Delayed parameter update (ZeRO-Offload, Ren et al. 2021): the host applies step k's gradients
// while the device runs step k+1 with the weights that step k-1 left. The device's weights are thus
// one update late, and the update costs no time as long as it is shorter than the step.
//
// The optimizer works on aliases of the host copies, which hold the gradients in use, so that the
// next step can collect its gradients on the host copies meanwhile. wait() frees the aliases'
// gradients on the calling thread, so that memory does not depend on timing.
class DelayedUpdate final : public UpdateAfterBackward {
 public:
  // `aliases`: the optimizer's parameters, in the order of the engine's, which are the host copies.
  DelayedUpdate(const Engine& engine, std::vector<optim::NamedTensor> aliases, bool in_background)
      : UpdateAfterBackward(engine), aliases_(std::move(aliases)), in_background_(in_background) {}
  DelayedUpdate(const DelayedUpdate&) = delete;
  DelayedUpdate& operator=(const DelayedUpdate&) = delete;

  // Takes the gradients of the host copies and starts an update with them. The previous update must
  // be complete.
  void update(const optim::StepOptions& options) override;
  bool is_late() const override { return true; }
  void wait() override;
  void finish() override;

  // Whether an update was started that nobody has waited for.
  bool is_under_way() const { return running_.valid(); }

  // If false, update() runs it before it returns; for machines without a second processor.
  void set_in_background(bool in_background) { in_background_ = in_background; }

  // New tensors that share the host copies' storage.
  static std::vector<optim::NamedTensor> aliases_of(const std::vector<optim::NamedTensor>& homes);

 private:
  void run(const optim::StepOptions& options);

  std::vector<optim::NamedTensor> aliases_;
  bool in_background_;
  std::future<void> running_;  // last: its destructor waits, while what it works with is there
};

}  // namespace snug::engine
