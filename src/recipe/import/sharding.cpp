// DeepSpeed's and FSDP's settings: which of a recipe's states are sharded, and what is offloaded.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/files.h"
#include "recipe/import/programs.h"
#include "recipe/import/shared.h"
#include "recipe/options/names.h"

namespace snug::recipe {
namespace {

constexpr std::string_view kFromRecipe = "the recipe's own value counts, as for \"auto\"";
constexpr double kMostElements = 1e18;
constexpr std::string_view kBuckets = "snug sizes its buckets by blocks of the model";

constexpr std::string_view kStages = "0=ddp 1=zero1 2=zero2 3=fsdp";

void take_stage(Draft& draft, const Found& found) {
  const std::string_view strategy = word_for(kStages, found.node.text);
  if (strategy.empty()) return draft.refuse(found.key, "strategy", "DeepSpeed's stages are 0 to 3");
  draft.set("strategy", strategy, found.key);
}

void take_optimizer_offload(Draft& draft, const Found& found) {
  const std::string& device = found.node.text;
  if (device == "cpu")
    draft.set("optimizer_offload", "cpu", found.key);
  else if (device == "nvme")
    draft.set("optimizer_offload",
              "disk:" + draft.text("zero_optimization.offload_optimizer.nvme_path"), found.key);
  else
    draft.idle(found.key, std::string(kOff));
}

void take_offload_ratio(Draft& draft, const Found& found) {
  draft.deepspeed().offloaded = draft.number(found.key).value_or(1);
  if (draft.number(found.key) == 1) return draft.idle(found.key, "all of it, as here");
  draft.differs(found.key, "the whole optimizer state is kept in host memory, not a share of it");
}

// Beyond 1: weights are gathered within a host from a second copy.
void take_part_of_mesh(Draft& draft, const Found& found) {
  const double ranks = draft.number(found.key).value_or(1);
  if (ranks <= kMostElements) draft.deepspeed().host_group = static_cast<int64_t>(ranks);
  if (ranks <= 1)
    draft.idle(found.key, std::string(kOff));
  else
    draft.refuse(found.key, "strategy", "give --strategy hybrid, which shards within a host");
}

void take_parameter_offload(Draft& draft, const Found& found) {
  const std::string& device = found.node.text;
  if (device.empty() || device == "none") return draft.idle(found.key, std::string(kOff));
  draft.set("weight_streaming", "true", found.key);
  if (device == "nvme") draft.differs(found.key, "weights wait in host memory, not on the disk");
}

// Sizes that a plan of DeepSpeed's own memory reads.
struct SizeKey {
  std::string_view keys;  // of which the last word counts
  int64_t DeepSpeed::*size;
};
constexpr SizeKey kSizes[] = {
    {"reduce_bucket_size", &DeepSpeed::reduce_bucket},
    {"stage3_prefetch_bucket_size prefetch_bucket_size", &DeepSpeed::prefetch_bucket},
    {"stage3_param_persistence_threshold param_persistence_threshold",
     &DeepSpeed::persistence_threshold},
    {"stage3_max_live_parameters max_live_parameters", &DeepSpeed::max_live},
    {"stage3_max_reuse_distance max_reuse_distance", &DeepSpeed::max_reuse_distance},
    {"sub_group_size", &DeepSpeed::sub_group},
};

constexpr std::string_view kPinned =
    "snug copies through pinned buffers whose sizes follow from the blocks of the model";

void take_super_offload(Draft& draft, const Found& found) {
  draft.deepspeed().super_offload = is_on(found.node);
  draft.idle(found.key, std::string(kPinned));
}

void take_size(Draft& draft, const Found& found) {
  const std::string_view key = std::string_view(found.key).substr(found.key.rfind('.') + 1);
  const std::optional<double> number = draft.number(found.key);
  const bool is_auto = lower(found.node.text) == "auto";
  if (!is_auto && (!number || *number < 0 || *number > kMostElements))
    return draft.refuse(found.key, "", "must be a number of elements, or auto");
  for (const SizeKey& size : kSizes)
    if (std::ranges::count(words_of(size.keys), key) > 0)
      draft.deepspeed().*size.size = is_auto ? DeepSpeed::kAuto : static_cast<int64_t>(*number);
  draft.idle(found.key, std::string(kBuckets));
}

void take_overlap(Draft& draft, const Found& found) {
  draft.deepspeed().overlaps = is_on(found.node) && lower(found.node.text) != "auto";
  draft.idle(found.key, std::string(kBuckets));
}

// Without them, each gradient is reduced from where it is.
void take_contiguous(Draft& draft, const Found& found) {
  draft.deepspeed().has_buckets = is_on(found.node);
  draft.idle(found.key, std::string(kBuckets));
}

using Way = KeyRow::Way;

constexpr KeyRow kDeepSpeedRows[] = {
    {"zero_optimization.stage", Way::By, "strategy", {}, {}, take_stage},
    {"zero_optimization.offload_optimizer.device",
     Way::By,
     "optimizer_offload",
     {},
     {},
     take_optimizer_offload},
    {"zero_optimization.offload_optimizer.nvme_path", Way::Read, "optimizer_offload"},
    {"zero_optimization.offload_optimizer.ratio",
     Way::By,
     "optimizer_offload",
     {},
     {},
     take_offload_ratio},
    {"zero_optimization.offload_param.device",
     Way::By,
     "weight_streaming",
     {},
     {},
     take_parameter_offload},
    {"zero_optimization.cpu_offload", Way::Words, "optimizer_offload", "true=cpu false=none"},
    {"zero_optimization.cpu_offload_param", Way::Same, "weight_streaming"},
    {"zero_optimization.offload_optimizer.buffer_count "
     "zero_optimization.offload_optimizer.pin_memory "
     "zero_optimization.offload_optimizer.pipeline_read "
     "zero_optimization.offload_optimizer.pipeline_write "
     "zero_optimization.offload_optimizer.fast_init "
     "zero_optimization.offload_optimizer.cpuadam_cores_perc "
     "zero_optimization.offload_param.nvme_path zero_optimization.offload_param.buffer_count "
     "zero_optimization.offload_param.buffer_size zero_optimization.offload_param.max_in_cpu "
     "zero_optimization.offload_param.pin_memory zero_optimization.cpu_offload_use_pin_memory",
     Way::Idle,
     {},
     kPinned},
    {"zero_optimization.offload_optimizer.super_offload", Way::By, {}, {}, {}, take_super_offload},
    {"zero_optimization.reduce_bucket_size zero_optimization.sub_group_size "
     "zero_optimization.stage3_prefetch_bucket_size zero_optimization.prefetch_bucket_size "
     "zero_optimization.stage3_param_persistence_threshold "
     "zero_optimization.param_persistence_threshold "
     "zero_optimization.stage3_max_live_parameters zero_optimization.max_live_parameters "
     "zero_optimization.stage3_max_reuse_distance zero_optimization.max_reuse_distance",
     Way::By,
     {},
     {},
     {},
     take_size},
    {"zero_optimization.overlap_comm", Way::By, {}, {}, {}, take_overlap},
    {"zero_optimization.contiguous_gradients", Way::By, {}, {}, {}, take_contiguous},
    {"zero_optimization.allgather_bucket_size "
     "zero_optimization.allgather_partitions zero_optimization.reduce_scatter "
     "zero_optimization.use_multi_rank_bucket_allreduce zero_optimization.parameter_alignment "
     "zero_optimization.round_robin_gradients "
     "zero_optimization.stage3_model_persistence_threshold "
     "zero_optimization.model_persistence_threshold "
     "zero_optimization.stage3_module_granularity_threshold "
     "zero_optimization.module_granularity_threshold "
     "zero_optimization.stage3_use_all_reduce_for_fetch_params "
     "zero_optimization.use_all_reduce_for_fetch_params "
     "zero_optimization.stage3_allgather_sequential zero_optimization.allgather_sequential "
     "zero_optimization.stage3_gather_16bit_weights_on_model_save "
     "zero_optimization.gather_16bit_weights_on_model_save "
     "zero_optimization.stage3_gather_fp16_weights_on_model_save "
     "zero_optimization.memory_efficient_linear zero_optimization.ignore_unused_parameters "
     "zero_optimization.elastic_checkpoint zero_optimization.load_from_fp32_weights "
     "zero_optimization.pipeline_loading_checkpoint zero_optimization.override_module_apply "
     "zero_optimization.legacy_stage1 zero_optimization.leaf_module "
     "zero_optimization.compute_grad_norm zero_optimization.enable_sanity_checks "
     "zero_optimization.save_muon_momentum_buffer_in_memory "
     "zero_optimization.log_trace_cache_warnings",
     Way::Idle,
     {},
     kBuckets},
    {"zero_optimization.zero_quantized_weights zero_optimization.zero_quantized_gradients "
     "zero_optimization.zero_quantized_nontrainable_weights zero_optimization.zeropp_loco_param "
     "zero_optimization.zenflow hybrid_engine expert_parallel pipeline autotuning "
     "sparse_attention sparse_gradients compression_training quantize_training "
     "weight_quantization eigenvalue elasticity curriculum_learning data_efficiency "
     "progressive_layer_drop",
     Way::Off, "strategy", kNoSuchTechnique},
    {"zero_optimization.zero_hpz_partition_size", Way::By, "strategy", {}, {}, take_part_of_mesh},
    {"tensor_parallel", Way::Off, "mesh", "give --mesh tp=2 for two GPUs to a layer"},
    {"zero_optimization.mics_shard_size zero_optimization.mics_hierarchical_params_gather",
     Way::Off, "strategy", "give --strategy hybrid, which shards within a host"},
    {"train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps optimizer "
     "scheduler gradient_clipping fp16 bf16 bfloat16 amp torch_autocast",
     Way::Idle,
     {},
     kFromRecipe},
    {"zero_allow_untested_optimizer zero_force_ds_cpu_optimizer zero_force_ds_cpu_initialization "
     "prescale_gradients gradient_predivide_factor gradient_allreduce_op communication_data_type "
     "seq_parallel_communication_data_type disable_allgather managed_gradient_accumulation "
     "use_data_before_expert_parallelism activation_checkpointing aio flops_profiler "
     "steps_per_print wall_clock_breakdown memory_breakdown timers log_level dump_state "
     "tensorboard csv_monitor wandb comet comms_logger checkpoint datastates_ckpt nebula compile "
     "graph_harvesting monitor_config data_types "
     "dataloader_drop_last disable_python_gc vocabulary_size",
     Way::Idle,
     {},
     "DeepSpeed's own; snug's collectives, copies and log have no such setting"},
};

constexpr KeyRow kFsdpRows[] = {
    {"fsdp_config", Way::Off, "strategy",
     "write the file's keys into the recipe, or give --strategy fsdp or zero2"},
    {"fsdp fsdp_config.version fsdp_config.offload_params fsdp_config.cpu_offload "
     "fsdp_config.reshard_after_forward fsdp_config.sharding_strategy "
     "fsdp_config.activation_checkpointing",
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
  draft.set("strategy", word_for(kStages, name.substr(stage, 1)), "deepspeed");
  DeepSpeed& settings = draft.deepspeed();
  for (int64_t DeepSpeed::*size :
       {&DeepSpeed::reduce_bucket, &DeepSpeed::prefetch_bucket, &DeepSpeed::persistence_threshold})
    settings.*size = DeepSpeed::kAuto;
  if (name.find("offload") != std::string::npos) {
    draft.set("optimizer_offload", "cpu", "deepspeed");
    if (name.find("all") != std::string::npos) draft.set("weight_streaming", "true", "deepspeed");
  }
  draft.differs(
      "deepspeed",
      fmt::format("there is no file {}; the stage is taken from its name, and its buckets "
                  "are taken for \"auto\"",
                  path));
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
  bool offloads = draft.on("fsdp_config.offload_params") || draft.on("fsdp_config.cpu_offload");
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

const Program& deepspeed() {
  const auto finish = [](Draft& draft) {
    draft.deepspeed();
    if (draft.find("zero_optimization.stage") == nullptr)
      draft.set("strategy", "ddp", "zero_optimization.stage");
  };
  static const Program kProgram = {
      .name = "DeepSpeed", .signs = {}, .tables = {kDeepSpeedRows}, .finish = finish};
  return kProgram;
}

std::span<const KeyRow> fsdp_rows() { return kFsdpRows; }

bool take_sharding(Draft& draft) {
  const bool deep = take_deepspeed(draft);
  return take_fsdp(draft) || deep;
}

}  // namespace snug::recipe
