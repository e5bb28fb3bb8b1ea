// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "recipe/batches.h"
#include "recipe/selection.h"
#include "recipe/techniques/technique.h"

namespace snug::recipe {

namespace {

bool shards_nothing_or_states(const Recipe& r) {
  return r.strategy == Strategy::Ddp || r.strategy == Strategy::Zero1 ||
         r.strategy == Strategy::Zero2;
}

// weight_offload, which says where frozen weights lie that are copied block by block. It is no
// technique of its own, since a fit has no folder to try it with.
void add_faults_of_folder(const Recipe& r, std::vector<std::string>& faults) {
  if (r.weight_offload == "none") return;
  const std::string is = fmt::format("weight_offload = {}", r.weight_offload);
  const std::optional<std::string> folder = r.weight_folder();
  if (!folder || folder->empty())
    faults.push_back(is + ": must be none or disk:FOLDER, as in disk:/mnt/nvme");
  const std::string states = r.offload_folder().value_or(r.fit ? r.fit_disk : "");
  if (!states.empty() && states != folder)
    faults.push_back(
        fmt::format("{} with optimizer states in {}: a plan knows one disk; name the same folder "
                    "for both",
                    is, states));
  if (!r.weight_streaming)
    faults.push_back(
        is +
        ": weights in a file are copied to the device block by block; add --weight_streaming "
        "true");
  if (!r.lora.enabled && part_names(r.model.train_parts).empty())
    faults.push_back(is +
                     ": all weights are trained, and only frozen ones can lie in a file; train "
                     "adapters (snug finetune) or leave it out");
  if (has_several_devices(r))
    faults.push_back(is +
                     ": works on one device only; on several, leave it out: --strategy fsdp shards "
                     "the weights in host memory");
}

}  // namespace

Technique weight_streaming() {
  return {
      .key = "weight_streaming",
      .option =
          [](Recipe& r) {
            return Row{.key = "weight_streaming",
                       .slot = &r.weight_streaming,
                       .help =
                           "keep weights in host memory and copy them to the device block "
                           "by block; needs optimizer_offload",
                       .common = true};
          },
      .add_faults = add_faults_of_folder,
      .needs = {{"optimizer_offload", "weights in host memory are updated on the host"}},
      .conditions = {{[](const Recipe& r) { return is_alone(r) || !shards_nothing_or_states(r); },
                      "weight_streaming = true with strategy = {strategy}: on several devices "
                      "weights in host memory are sharded; use --strategy fsdp",
                      /*about_devices=*/true}},
      .values = {"false", "true"},
      .cost = TimeCost::CopiedWeights,
      .cost_words = "weights in host memory too: copies them twice per micro-batch"};
}

}  // namespace snug::recipe
