// Which techniques to turn on: the fastest combination that fits into a device, among all that
// change neither what is learnt nor what somebody has chosen.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "plan/candidate.h"

namespace snug::plan {

struct Fit {
  std::optional<Candidate> best;      // none: nothing fits
  std::vector<Candidate> front;       // no other one is both smaller and faster; fastest first
  std::optional<Candidate> smallest;  // of those that do not fit, the one nearest to it
  // Where nothing fits for want of host memory, and no folder for states is allowed: the fastest
  // that would fit with one.
  std::optional<Candidate> with_disk;
  int64_t tried = 0;

  // Whether the search chose a disk for the states, which it does where nothing fits without.
  bool chose_disk(const recipe::Recipe& asked) const;
};

// Tries activation checkpointing and offload, optimizer in backward and offload, weight streaming
// and the micro-batch, and on several devices the strategy and the mesh (layouts.h), each unless
// the recipe gives it. Optimizer, precision and global batch stay: they would change the training.
// Delayed updates are tried where the recipe allows them (fit_delay), states on disk where it names
// a folder for them (fit_disk) and nothing fits otherwise. Models that are cut or dealt out are
// tried where they could be faster than what was found before. Host memory that is only assumed is
// passed where nothing fits within it.
Fit fit(const models::Model& model, const recipe::Recipe& recipe, const Workload& work,
        const DeviceProfile& device);

}  // namespace snug::plan
