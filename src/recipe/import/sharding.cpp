// DeepSpeed's and FSDP's settings: which of a recipe's states are sharded, and what is offloaded.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/files.h"
#include "recipe/import/shared.h"
#include "recipe/options/names.h"

namespace snug::recipe {
namespace {

constexpr std::string_view kFromRecipe = "the recipe's own value counts, as for \"auto\"";
constexpr std::string_view kBuckets = "snug sizes its buckets by blocks of the model";

void take_stage(Draft& draft, const Found& found) {
  const std::string_view strategy = word_for("0=ddp 1=zero1 2=zero2 3=fsdp", found.node.text);
  if (strategy.empty()) return draft.refuse(found.key, "strategy", "DeepSpeed's stages are 0 to 3");
  draft.set("strategy", strategy, found.key);
}

void take_optimizer_offload(Draft& draft, const Found& found) {
  const std::string device = text_in(found.node, "device");
  const std::string folder = text_in(found.node, "nvme_path");
  if (device == "cpu")
    draft.set("optimizer_offload", "cpu", found.key);
  else if (device == "nvme")
    draft.set("optimizer_offload", "disk:" + folder, found.key);
  else
    draft.idle(found.key, std::string(kOff));
}

void take_parameter_offload(Draft& draft, const Found& found) {
  const std::string device = text_in(found.node, "device");
  if (device.empty() || device == "none") return draft.idle(found.key, std::string(kOff));
  draft.set("weight_streaming", "true", found.key);
  if (device == "nvme") draft.differs(found.key, "weights wait in host memory, not on the disk");
}

using Way = KeyRow::Way;

constexpr KeyRow kDeepSpeedRows[] = {
    {"zero_optimization.stage", Way::By, "strategy", {}, {}, take_stage},
    {"zero_optimization.offload_optimizer",
     Way::By,
     "optimizer_offload",
     {},
     {},
     take_optimizer_offload},
    {"zero_optimization.offload_param",
     Way::By,
     "weight_streaming",
     {},
     {},
     take_parameter_offload},
    {"zero_optimization.cpu_offload", Way::Words, "optimizer_offload", "true=cpu false=none"},
    {"zero_optimization.overlap_comm zero_optimization.contiguous_gradients "
     "zero_optimization.reduce_bucket_size zero_optimization.allgather_bucket_size "
     "zero_optimization.allgather_partitions zero_optimization.reduce_scatter "
     "zero_optimization.round_robin_gradients zero_optimization.sub_group_size "
     "zero_optimization.stage3_prefetch_bucket_size "
     "zero_optimization.stage3_param_persistence_threshold "
     "zero_optimization.stage3_max_live_parameters zero_optimization.stage3_max_reuse_distance "
     "zero_optimization.stage3_gather_16bit_weights_on_model_save "
     "zero_optimization.stage3_gather_fp16_weights_on_model_save "
     "zero_optimization.memory_efficient_linear zero_optimization.ignore_unused_parameters "
     "zero_optimization.elastic_checkpoint zero_optimization.load_from_fp32_weights "
     "zero_optimization.log_trace_cache_warnings",
     Way::Idle,
     {},
     kBuckets},
    {"zero_optimization.zero_quantized_weights zero_optimization.zero_quantized_gradients "
     "zero_optimization.zero_hpz_partition_size "
     "zero_optimization.zero_quantized_nontrainable_weights "
     "zero_optimization.mics_shard_size autotuning sparse_attention "
     "compression_training curriculum_learning data_efficiency progressive_layer_drop",
     Way::Off, "strategy", kNoSuchTechnique},
    {"train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps optimizer "
     "scheduler gradient_clipping fp16 bf16 amp",
     Way::Idle,
     {},
     kFromRecipe},
    {"zero_allow_untested_optimizer zero_force_ds_cpu_optimizer zero_force_ds_cpu_initialization "
     "prescale_gradients gradient_predivide_factor communication_data_type "
     "seq_parallel_communication_data_type activation_checkpointing aio flops_profiler "
     "steps_per_print wall_clock_breakdown dump_state tensorboard csv_monitor wandb comet "
     "comms_logger checkpoint compile monitor_config data_types torch_autocast tensor_parallel",
     Way::Idle,
     {},
     "DeepSpeed's own; snug's collectives, copies and log have no such setting"},
};

constexpr KeyRow kFsdpRows[] = {
    {"fsdp_config", Way::Off, "strategy",
     "write the file's keys into the recipe, or give --strategy fsdp or zero2"},
    {"fsdp fsdp_config.version fsdp_config.offload_params fsdp_config.reshard_after_forward "
     "fsdp_config.sharding_strategy fsdp_config.activation_checkpointing",
     Way::Read, "strategy"},
    {"fsdp_config.auto_wrap_policy fsdp_config.transformer_layer_cls_to_wrap "
     "fsdp_config.backward_prefetch fsdp_config.forward_prefetch fsdp_config.use_orig_params "
     "fsdp_config.cpu_ram_efficient_loading fsdp_config.sync_module_states "
     "fsdp_config.state_dict_type fsdp_config.final_state_dict_type fsdp_config.min_num_params "
     "fsdp_config.limit_all_gathers fsdp_config.mixed_precision_policy "
     "fsdp_config.cpu_offload_pin_memory "
     "fsdp_min_num_params fsdp_transformer_layer_cls_to_wrap",
     Way::Idle,
     {},
     "snug gathers block by block, and writes one whole model"},
};

const Program& deepspeed() {
  static const Program kProgram = {
      .name = "DeepSpeed", .signs = {}, .tables = {kDeepSpeedRows}, .finish = [](Draft&) {}};
  return kProgram;
}

// "deepspeed_configs/zero3_bf16_cpuoffload_all.json", "ds_z2_offload_config.json".
void take_file_name(Draft& draft, const std::string& path) {
  const std::string name = lower(std::filesystem::path(path).filename().string());
  const size_t zero = name.find("zero"),
               z = zero != std::string::npos ? zero + 4 : name.find("_z") + 2;
  const size_t stage = name.find_first_not_of("-_", z);
  const bool named = stage < name.size() && name[stage] >= '0' && name[stage] <= '3' &&
                     (zero != std::string::npos || name.find("_z") != std::string::npos);
  if (!named)
    return draft.refuse("deepspeed", "strategy",
                        fmt::format("there is no file {}; put it beside the recipe, or give "
                                    "--strategy zero2 or fsdp (ZeRO-3)",
                                    path));
  draft.set("strategy", word_for("0=ddp 1=zero1 2=zero2 3=fsdp", name.substr(stage, 1)),
            "deepspeed");
  if (name.find("offload") != std::string::npos) {
    draft.set("optimizer_offload", "cpu", "deepspeed");
    if (name.find("all") != std::string::npos) draft.set("weight_streaming", "true", "deepspeed");
  }
  draft.differs("deepspeed",
                fmt::format("there is no file {}; the stage is taken from its name", path));
}

bool take_deepspeed(Draft& draft) {
  const Found* found = draft.find("deepspeed");
  if (found == nullptr) return false;
  const std::string path = found->node.text;
  const std::string file = path.empty() ? "" : existing_file(draft, path);
  if (!path.empty() && file.empty()) {
    take_file_name(draft, path);
    return true;
  }
  Draft inner(deepspeed(), file.empty() ? draft.file() : file);
  inner.read(file.empty() ? found->node : read_yaml(read_file(file, kMaxRecipeBytes), file));
  draft.merge(inner.take());
  return true;
}

bool take_fsdp(Draft& draft) {
  const Found* fsdp = draft.find("fsdp");
  const bool has_config = draft.find("fsdp_config.version") != nullptr ||
                          draft.on("fsdp_config.reshard_after_forward") ||
                          draft.on("fsdp_config.sharding_strategy");
  if ((fsdp == nullptr || !is_on(fsdp->node)) && !has_config && !draft.on("fsdp_version"))
    return false;
  const std::string_view key = fsdp != nullptr ? "fsdp" : "fsdp_config.version";
  std::string words = fsdp != nullptr ? fsdp->node.text : "";
  if (fsdp != nullptr)
    for (const YamlNode& item : fsdp->node.items) words += " " + item.text;
  std::ranges::replace(words, ',', ' ');
  static constexpr std::string_view kNames =
      "full_shard=fsdp shard_grad_op=zero2 no_shard=ddp hybrid_shard=hybrid 1=fsdp 2=zero2 3=ddp "
      "4=hybrid";
  std::string_view strategy = "fsdp";
  bool offloads = draft.on("fsdp_config.offload_params");
  for (const std::string_view word : words_of(words)) {
    if (const auto known = word_for(kNames, lower(word)); !known.empty()) strategy = known;
    offloads = offloads || word == "offload";
  }
  if (const auto known = word_for(kNames, lower(draft.text("fsdp_config.sharding_strategy")));
      !known.empty())
    strategy = known;
  if (draft.text("fsdp_config.reshard_after_forward") == "false" && strategy == "fsdp")
    strategy = "zero2";
  draft.set("strategy", strategy, key);
  if (offloads) {
    draft.set("optimizer_offload", "cpu", key);
    draft.set("weight_streaming", "true", key);
  }
  return true;
}

}  // namespace

std::span<const KeyRow> fsdp_rows() { return kFsdpRows; }

bool take_sharding(Draft& draft) {
  const bool deep = take_deepspeed(draft);
  return take_fsdp(draft) || deep;
}

}  // namespace snug::recipe
