// Where experts' weights come from, if not all of a block's are on the device: a policy brings each
// expert's for as long as it computes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace snug::ops {

class ExpertWeights {
 public:
  virtual ~ExpertWeights() = default;
  // A pass over these of the experts, by number and in this order, begins. From here to the end as
  // much memory is taken whatever the order; it may be empty.
  virtual void begin(std::vector<size_t> order) = 0;
  // Later device work may read the weights of the order's next expert, no longer those before it.
  virtual void next() = 0;
  virtual void end() = 0;
};

// While it lives, expert_mlps() on this thread takes weights from `weights`, also in its backward.
class ExpertWeightsGuard {
 public:
  explicit ExpertWeightsGuard(ExpertWeights* weights);
  ~ExpertWeightsGuard();
  ExpertWeightsGuard(const ExpertWeightsGuard&) = delete;
  ExpertWeightsGuard& operator=(const ExpertWeightsGuard&) = delete;

 private:
  ExpertWeights* previous_;
};

}  // namespace snug::ops
