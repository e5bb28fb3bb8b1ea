// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "recipe/techniques/checkpointing.h"
#include "recipe/techniques/technique.h"

namespace snug::recipe {

Technique activation_checkpointing() {
  return {.key = "activation_checkpointing",
          .option =
              [](Recipe& r) {
                return Row{
                    .key = "activation_checkpointing",
                    .slot = &r.activation_checkpointing,
                    .help =
                        "all: keep only the input of each block and recompute its forward in "
                        "backward; every:K or a list (0,2,8-11): these blocks only; selective: "
                        "keep matrix products, recompute norms",
                    .choices = {"none", "all", "selective", "every:K", "LIST"},
                    .open = true,
                    .aliases = {"act_ckpt"},
                    .rewordings = {{"act_ckpt", "true", "all"}, {"act_ckpt", "false", "none"}},
                    .common = true,
                    .joins_list = true};
              },
          .add_faults =
              [](const Recipe& r, std::vector<std::string>& faults) {
                if (read_checkpointing(r.activation_checkpointing)) return;
                faults.push_back(fmt::format(
                    "activation_checkpointing = {}: must be none, all, selective, every:K with a "
                    "whole K from 1, or a list of blocks such as 0,2,8-11",
                    r.activation_checkpointing));
              },
          .values = {"none", "selective", "every:2", "all"},
          .cost = TimeCost::Recompute,
          .cost_words = "each block runs forward twice: about 30 % slower"};
}

}  // namespace snug::recipe
