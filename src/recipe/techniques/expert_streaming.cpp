// SPDX-License-Identifier: Apache-2.0
#include "recipe/techniques/technique.h"

namespace snug::recipe {

Technique expert_streaming() {
  return {
      .key = "expert_streaming",
      .option =
          [](Recipe& r) {
            return Row{.key = "expert_streaming",
                       .slot = &r.expert_streaming,
                       .help =
                           "of a mixture of experts, copy each expert's weights to the device only "
                           "while it computes, and only if the router chose it, rather than a "
                           "block's together; needs weight_streaming"};
          },
      .needs = {{"weight_streaming", "experts' weights must be in host memory"}},
      .excludes = {{"delayed_parameter_update",
                    "the device would read weights while the host updates them"}},
      .conditions = {{is_alone,
                      "expert_streaming = true: works on one device only; on several, spread the "
                      "experts over them with --mesh ep=N"}},
      .values = {"false", "true"},
      .for_experts = true,
      .cost = TimeCost::CopiedExperts,
      .cost_words = "copies experts one by one, once more where blocks are computed again"};
}

}  // namespace snug::recipe
