// SPDX-License-Identifier: Apache-2.0
#include "recipe/batches.h"
#include "recipe/techniques/technique.h"

namespace snug::recipe {

// Saves time rather than memory, and changes the training result.
Technique delayed_parameter_update() {
  return {
      .key = "delayed_parameter_update",
      .option =
          [](Recipe& r) {
            return Row{.key = "delayed_parameter_update",
                       .slot = &r.delayed_parameter_update,
                       .help =
                           "update on the host while the device runs the next step, whose "
                           "weights are then one update behind; needs optimizer_offload"};
          },
      .needs = {{"optimizer_offload", "the update must run on the host"}},
      .excludes = {{"weight_streaming",
                    "the device would read weights while the host updates them"},
                   {"optimizer_in_backward", "one updates after the step, the other during it"}},
      .conditions = {{[](const Recipe& r) { return !r.train.keep_best; },
                      "delayed_parameter_update = true with train.keep_best: the host updates the "
                      "weights while they would be written; leave one of them out"},
                     {[](const Recipe& r) { return !has_several_devices(r); },
                      "delayed_parameter_update = true: not supported on several devices yet; "
                      "leave it out",
                      /*about_devices=*/true}},
      .values = {"false", "true"},
      .may_try = [](const Recipe& r) { return r.fit_delay && !has_several_devices(r); },
      .gains_on_gpus_only = true,
      .changes_training = "Updates are one step late, as fit_delay allows: training differs."};
}

}  // namespace snug::recipe
