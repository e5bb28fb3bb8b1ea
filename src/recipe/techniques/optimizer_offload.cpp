// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "recipe/techniques/technique.h"

namespace snug::recipe {

Technique optimizer_offload() {
  return {
      .key = "optimizer_offload",
      .option =
          [](Recipe& r) {
            return Row{.key = "optimizer_offload",
                       .slot = &r.optimizer_offload,
                       .help =
                           "cpu: keep optimizer states in host memory and update there; "
                           "gradients are copied to the host and weights back; disk:FOLDER: "
                           "as cpu, but with the states in a file in FOLDER",
                       .choices = {"none", "cpu", "disk:FOLDER"},
                       .open = true,
                       .common = true};
          },
      .add_faults =
          [](const Recipe& r, std::vector<std::string>& faults) {
            if (r.optimizer_offload == "disk:")
              faults.emplace_back(
                  "optimizer_offload = disk: the folder is missing; write it as in "
                  "disk:/mnt/nvme");
            else if (r.updates_on_host() && r.optimizer_offload != "cpu" && !r.offload_folder())
              faults.push_back(fmt::format(
                  "optimizer_offload = {}: must be none, cpu or disk:FOLDER (the folder for the "
                  "file of optimizer states, as in disk:/mnt/nvme)",
                  r.optimizer_offload));
          },
      .values = {"none", "cpu"},
      .takes_folder = true,
      .cost = TimeCost::UpdatesOnHost,
      .cost_words = "states and updates in host memory: copies gradients and weights"};
}

}  // namespace snug::recipe
