// SPDX-License-Identifier: Apache-2.0
#include "recipe/techniques/technique.h"

namespace snug::recipe {

// Saves the host's time, and keeps the memory of a pass between steps.
Technique cuda_graphs() {
  constexpr std::string_view kCopies =
      "one records what a stream does, the other orders several streams";
  constexpr std::string_view kUpdates =
      "one does each pass again as it was recorded, the other updates with that step's learning "
      "rate";
  return {
      .key = "cuda_graphs",
      .option =
          [](Recipe& r) {
            return Row{.key = "cuda_graphs",
                       .slot = &r.cuda_graphs,
                       .help =
                           "on a GPU, record forward and backward of micro-batches that are alike "
                           "as CUDA graphs and launch each with one call: for small models, which "
                           "keep the host busier than the GPU. Alike are those of samples of the "
                           "same lengths with as many tokens to learn, as texts cut at "
                           "train.max_seq_length are; others run as always. Needs one device"};
          },
      .excludes = {{"activation_offload", kCopies},
                   {"optimizer_in_backward", kUpdates},
                   {"optimizer_offload", kCopies},
                   {"delayed_parameter_update", kCopies},
                   {"weight_streaming", kCopies},
                   {"expert_streaming", kCopies},
                   {"cast_cache", "one drops the copies that the other's passes read"}},
      .conditions = {{[](const Recipe& r) { return r.weight_offload == "none"; },
                      "cuda_graphs = true with weight_offload: one records what a stream does, the "
                      "other orders several streams; leave out one of the two"},
                     {is_alone,
                      "cuda_graphs = true: passes of several devices wait for each other and "
                      "cannot be recorded; use --devices 1, or leave it out",
                      /*about_devices=*/true}},
      .values = {"false", "true"},
      .may_try = [](const Recipe&) { return false; },
      .cost_words_of_off = "the host launches each kernel again"};
}

}  // namespace snug::recipe
