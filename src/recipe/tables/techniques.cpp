// SPDX-License-Identifier: Apache-2.0
#include "recipe/tables/techniques.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "recipe/batches.h"
#include "recipe/selection.h"

namespace snug::recipe {
namespace {

bool is_alone(const Recipe& r) { return r.devices == "1" && r.num_nodes == 1 && r.mesh.empty(); }

bool shards_nothing_or_states(const Recipe& r) {
  return r.strategy == Strategy::Ddp || r.strategy == Strategy::Zero1 ||
         r.strategy == Strategy::Zero2;
}

TechniqueTraits activation_checkpointing() {
  return {.technique = Technique::ActivationCheckpointing,
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
          .value_fault = [](const Recipe& r) -> std::string {
            if (read_checkpointing(r.activation_checkpointing)) return {};
            return fmt::format(
                "activation_checkpointing = {}: must be none, all, selective, every:K with a "
                "whole K from 1, or a list of blocks such as 0,2,8-11",
                r.activation_checkpointing);
          },
          .values = {"none", "selective", "every:2", "all"},
          .cost = TimeCost::Recompute,
          .cost_words = "each block runs forward twice: about 30 % slower"};
}

TechniqueTraits activation_offload() {
  return {.technique = Technique::ActivationOffload,
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

TechniqueTraits optimizer_in_backward() {
  return {
      .technique = Technique::OptimizerInBackward,
      .option =
          [](Recipe& r) {
            return Row{
                .key = "optimizer_in_backward",
                .slot = &r.optimizer_in_backward,
                .help =
                    "update each block as soon as its gradients are complete, then free them; "
                    "auto: only where this changes neither results nor speed, that is on one "
                    "device, without optimizer_offload and with one micro-batch per step, but "
                    "not with train.max_norm, precision 16-mixed or train.on_oom split",
                .automatic = &r.optimizer_in_backward_is_auto};
          },
      .conditions =
          {{[](const Recipe& r) { return r.precision != Precision::MixedFloat16; },
            "optimizer_in_backward = true: precision 16-mixed skips a step whose gradients "
            "overflow, which is known only once all gradients are computed; use bf16-mixed"},
           {[](const Recipe& r) { return r.train.on_oom != OnOom::Split; },
            "train.on_oom = split: a failed step cannot be repeated after optimizer_in_backward "
            "has updated some blocks; use train.on_oom stop"}},
      .values = {"false", "true"},
      .cost = TimeCost::Nothing,
      .cost_words = "same training at about the same speed",
      // Clipping takes a second backward, and accumulated gradients cannot be freed early; those
      // that are updated on the host leave the device sooner all the same.
      .saves =
          [](const Recipe& r) {
            return r.updates_on_host() ||
                   (r.train.max_norm.value_or(0) == 0 && micro_batches_of_step(r) == 1);
          }};
}

TechniqueTraits optimizer_offload() {
  return {
      .technique = Technique::OptimizerOffload,
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
      .value_fault = [](const Recipe& r) -> std::string {
        if (r.optimizer_offload == "disk:")
          return "optimizer_offload = disk: the folder is missing; write it as in disk:/mnt/nvme";
        if (!r.updates_on_host() || r.optimizer_offload == "cpu" || r.offload_folder()) return {};
        return fmt::format(
            "optimizer_offload = {}: must be none, cpu or disk:FOLDER (the folder for the file of "
            "optimizer states, as in disk:/mnt/nvme)",
            r.optimizer_offload);
      },
      .values = {"none", "cpu"},
      .cost = TimeCost::UpdatesOnHost,
      .cost_words = "states and updates in host memory: copies gradients and weights"};
}

// Saves time rather than memory, and changes the training result.
TechniqueTraits delayed_parameter_update() {
  return {.technique = Technique::DelayedParameterUpdate,
          .option =
              [](Recipe& r) {
                return Row{.key = "delayed_parameter_update",
                           .slot = &r.delayed_parameter_update,
                           .help =
                               "update on the host while the device runs the next step, whose "
                               "weights are then one update behind; needs optimizer_offload"};
              },
          .needs = {{Technique::OptimizerOffload, "the update must run on the host"}},
          .excludes = {{Technique::WeightStreaming,
                        "the device would read weights while the host updates them"},
                       {Technique::OptimizerInBackward,
                        "one updates after the step, the other during it"}},
          .conditions = {{[](const Recipe& r) { return !has_several_devices(r); },
                          "delayed_parameter_update = true: not supported on several devices yet; "
                          "leave it out",
                          /*about_devices=*/true}},
          .values = {"false", "true"},
          .may_try = [](const Recipe& r) { return r.fit_delay && !has_several_devices(r); },
          .gains_on_gpus_only = true};
}

TechniqueTraits weight_streaming() {
  return {
      .technique = Technique::WeightStreaming,
      .option =
          [](Recipe& r) {
            return Row{.key = "weight_streaming",
                       .slot = &r.weight_streaming,
                       .help =
                           "keep weights in host memory and copy them to the device block "
                           "by block; needs optimizer_offload",
                       .common = true};
          },
      .needs = {{Technique::OptimizerOffload, "weights in host memory are updated on the host"}},
      .conditions = {{[](const Recipe& r) { return is_alone(r) || !shards_nothing_or_states(r); },
                      "weight_streaming = true with strategy = {strategy}: on several devices "
                      "weights in host memory are sharded; use --strategy fsdp",
                      /*about_devices=*/true}},
      .values = {"false", "true"},
      .cost = TimeCost::CopiedWeights,
      .cost_words = "weights in host memory too: copies them twice per micro-batch"};
}

TechniqueTraits expert_streaming() {
  return {
      .technique = Technique::ExpertStreaming,
      .option =
          [](Recipe& r) {
            return Row{.key = "expert_streaming",
                       .slot = &r.expert_streaming,
                       .help =
                           "of a mixture of experts, copy each expert's weights to the device only "
                           "while it computes, and only if the router chose it, rather than a "
                           "block's together; needs weight_streaming"};
          },
      .needs = {{Technique::WeightStreaming, "experts' weights must be in host memory"}},
      .excludes = {{Technique::DelayedParameterUpdate,
                    "the device would read weights while the host updates them"}},
      .conditions = {{is_alone,
                      "expert_streaming = true: works on one device only; on several, spread the "
                      "experts over them with --mesh ep=N"}},
      .values = {"false", "true"},
      .for_experts = true,
      .cost = TimeCost::CopiedExperts,
      .cost_words = "copies experts one by one, once more where blocks are computed again"};
}

bool casts_weights(const Recipe& r) {
  return r.precision == Precision::MixedBFloat16 || r.precision == Precision::MixedFloat16;
}

// Saves time and takes memory.
TechniqueTraits cast_cache() {
  constexpr std::string_view kFreesWhatIsKept =
      "one frees the weights that the other keeps copies of";
  return {
      .technique = Technique::CastCache,
      .option =
          [](Recipe& r) {
            return Row{.key = "cast_cache",
                       .slot = &r.cast_cache,
                       .help =
                           "in mixed precision, keep the 16-bit copy of each weight until its "
                           "last use in a step rather than make it for each product: fewer "
                           "bytes moved, 2 bytes a parameter more in memory"};
          },
      .excludes = {{Technique::WeightStreaming, kFreesWhatIsKept},
                   {Technique::ExpertStreaming, kFreesWhatIsKept}},
      .conditions = {{casts_weights,
                      "cast_cache = true: only -mixed precision casts weights; leave it out, or "
                      "use --precision bf16-mixed"}},
      .values = {"false", "true"},
      .may_try = casts_weights};
}

// Saves the host's time, and keeps the memory of a pass between steps.
TechniqueTraits cuda_graphs() {
  constexpr std::string_view kCopies =
      "one records what a stream does, the other orders several streams";
  constexpr std::string_view kUpdates =
      "one does each pass again as it was recorded, the other updates with that step's learning "
      "rate";
  return {
      .technique = Technique::CudaGraphs,
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
      .excludes = {{Technique::ActivationOffload, kCopies},
                   {Technique::OptimizerInBackward, kUpdates},
                   {Technique::OptimizerOffload, kCopies},
                   {Technique::DelayedParameterUpdate, kCopies},
                   {Technique::WeightStreaming, kCopies},
                   {Technique::ExpertStreaming, kCopies},
                   {Technique::CastCache, "one drops the copies that the other's passes read"}},
      .conditions = {{[](const Recipe& r) { return r.weight_offload == "none"; },
                      "cuda_graphs = true with weight_offload: one records what a stream does, the "
                      "other orders several streams; leave out one of the two"},
                     {is_alone,
                      "cuda_graphs = true: passes of several devices wait for each other and "
                      "cannot be recorded; use --devices 1, or leave it out",
                      /*about_devices=*/true}},
      .values = {"false", "true"},
      .may_try = [](const Recipe&) { return false; }};
}

// The faults of one technique that is on.
void add_faults(const TechniqueTraits& traits, const Recipe& recipe, bool with_devices,
                std::vector<std::string>& faults) {
  const std::string is = fmt::format("{} = {}", key_of(traits), value_of(traits, recipe));
  for (const auto& [other, words] : traits.needs)
    if (const TechniqueTraits& needed = traits_of(other); !is_on(needed, recipe))
      faults.push_back(
          fmt::format("{}: {}; add --{} {}", is, words, key_of(needed), needed.values.back()));
  for (const auto& [other, words] : traits.excludes)
    if (is_on(traits_of(other), recipe))
      faults.push_back(fmt::format("{} with {}: {}; leave out one of the two", is,
                                   key_of(traits_of(other)), words));
  for (const Condition& condition : traits.conditions)
    if ((with_devices || !condition.about_devices) && !condition.holds(recipe))
      faults.push_back(fmt::format(fmt::runtime(condition.fault),
                                   fmt::arg("strategy", std::string_view(recipe.strategy))));
}

std::vector<std::string> faults_of(const Recipe& recipe, bool with_devices) {
  std::vector<std::string> faults;
  for (const TechniqueTraits& traits : techniques())
    if (is_on(traits, recipe)) add_faults(traits, recipe, with_devices, faults);
  return faults;
}

}  // namespace

const std::vector<TechniqueTraits>& techniques() {
  static const std::vector<TechniqueTraits> kTechniques = {activation_checkpointing(),
                                                           activation_offload(),
                                                           optimizer_in_backward(),
                                                           optimizer_offload(),
                                                           delayed_parameter_update(),
                                                           weight_streaming(),
                                                           expert_streaming(),
                                                           cast_cache(),
                                                           cuda_graphs()};
  return kTechniques;
}

const TechniqueTraits& traits_of(Technique technique) {
  return techniques()[static_cast<size_t>(technique)];
}

std::string key_of(const TechniqueTraits& traits) {
  Recipe any;
  return traits.option(any).key;
}

std::string value_of(const TechniqueTraits& traits, const Recipe& recipe) {
  Recipe copy = recipe;
  return plain_text(traits.option(copy));
}

void set_value(const TechniqueTraits& traits, Recipe& recipe, const std::string& value) {
  const Row row = traits.option(recipe);
  const std::string fault = store(row, {.kind = Value::Kind::Text, .text = value}, row);
  SNUG_CHECK(fault.empty(), "{} = {}: {}", row.key, value, fault);
}

bool is_on(const TechniqueTraits& traits, const Recipe& recipe) {
  return value_of(traits, recipe) != traits.values.front();
}

bool turn_on(const TechniqueTraits& traits, Recipe& recipe) {
  if (is_on(traits, recipe) || (traits.saves != nullptr && !traits.saves(recipe))) return false;
  Recipe with = recipe;
  for (const Beside& need : traits.needs) turn_on(traits_of(need.other), with);
  set_value(traits, with, std::string(traits.values.back()));
  // With updates on the host, auto means no update in the backward.
  if (with.optimizer_in_backward_is_auto && with.updates_on_host())
    with.optimizer_in_backward = false;
  if (!can_be_combined(with)) return false;
  recipe = std::move(with);
  return true;
}

std::vector<std::string> technique_faults(const Recipe& recipe) {
  std::vector<std::string> faults;
  for (const TechniqueTraits& traits : techniques()) {
    std::string fault = traits.value_fault ? traits.value_fault(recipe) : std::string();
    if (!fault.empty()) faults.push_back(std::move(fault));
  }
  std::ranges::move(faults_of(recipe, /*with_devices=*/true), std::back_inserter(faults));
  return faults;
}

bool can_be_combined(const Recipe& recipe) {
  return faults_of(recipe, /*with_devices=*/false).empty();
}

}  // namespace snug::recipe
