// SPDX-License-Identifier: Apache-2.0
#include "exec/policies/activation_checkpointing.h"

namespace snug::exec {

// The last unit's backward follows its forward at once: nothing would be saved by running it twice.
void ActivationCheckpointing::before_forward(UnitRun& run) {
  run.record = run.record && (run.is_last() || !units_[static_cast<size_t>(run.index)]);
}

}  // namespace snug::exec
