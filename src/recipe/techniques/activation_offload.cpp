// SPDX-License-Identifier: Apache-2.0
#include "recipe/techniques/technique.h"

namespace snug::recipe {

Technique activation_offload() {
  return {.key = "activation_offload",
          .option =
              [](Recipe& r) {
                return Row{.key = "activation_offload",
                           .slot = &r.activation_offload,
                           .help =
                               "move the activations that a block keeps for backward to host "
                               "memory until backward needs them"};
              },
          .values = {"false", "true"},
          .cost = TimeCost::CopiedActivations,
          .cost_words = "copies activations to host memory and back"};
}

}  // namespace snug::recipe
