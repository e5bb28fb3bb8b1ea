// Where NaN or infinities first appear: a policy that is added once a loss or a gradient norm was
// no number, and looks at each unit while the same micro-batches run again. Steps whose numbers are
// finite cost nothing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "engine/exec/policy.h"

namespace snug::exec {

// The first unit of this process that made numbers which are not finite from finite ones.
struct NonFinite {
  bool in_backward = false;
  int64_t micro_batch = 0;
  int64_t index = 0;  // of the unit among the process's
  std::string what;   // "the forward output \"hidden\" of model.layers.3"
};

// Whether each element is. Takes no memory that grows with the tensor; true for integers and on
// meta. On cuda the host waits.
bool all_finite(const at::Tensor& tensor);

class NumberWatch final : public Policy {
 public:
  void start() { watches_ = true; }
  // What was found since start().
  std::optional<NonFinite> stop();

  void before_forward(UnitRun& run) override;
  void after_forward(UnitRun& run) override;
  void after_backward(UnitRun& run) override;
  void abandon() override { stop(); }

 private:
  bool looks() const { return watches_ && !found_; }
  void found(const UnitRun& run, bool in_backward, std::string what);

  bool watches_ = false;
  bool input_is_finite_ = true;  // of the unit that runs
  std::optional<NonFinite> found_;
};

}  // namespace snug::exec
