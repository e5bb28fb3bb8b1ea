// --fit: finds the fastest combination of techniques that fits into a device, without changing the
// training or options that were given.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "plan/candidate.h"

namespace snug::plan {

struct Fit {
  std::optional<Candidate> best;      // none: nothing fits
  std::vector<Candidate> front;       // the Pareto front of memory and time; fastest first
  std::optional<Candidate> smallest;  // if nothing fits: the candidate that lacks least
  // If nothing fits for lack of host memory, and fit_disk names no folder: the fastest candidate
  // that would fit with one.
  std::optional<Candidate> with_disk;
  int64_t tried = 0;

  // Whether the search put states on disk, which it does only if nothing fits otherwise.
  bool chose_disk(const recipe::Recipe& asked) const;
};

// Tries activation checkpointing and offload, optimizer in backward and offload, weight streaming
// and the micro-batch, and on several devices the strategy and the mesh (search_space.h), each
// unless the recipe gives it. Optimizer, precision and global batch stay: they would change the
// training. Delayed updates are tried if the recipe allows them (fit_delay); states on disk if it
// names a folder (fit_disk) and nothing fits otherwise; tensor and pipeline parallelism if they
// could be faster than what was found so far. Assumed host memory is exceeded only if nothing fits
// within it.
Fit fit(const models::Model& model, const recipe::Recipe& recipe, const Workload& work,
        const DeviceProfile& device);

}  // namespace snug::plan
