// torchtune (0.6.1): https://github.com/pytorch/torchtune
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "recipe/import/programs.h"
#include "recipe/import/shared.h"
#include "recipe/numbers.h"
#include "recipe/options/names.h"

namespace snug::recipe {
namespace {

using Way = KeyRow::Way;

// --- ${output_dir}/logs ---

// Replaces each ${key} by the scalar at that key; `used` collects the keys. References may name
// values with references in them; `depth` ends circles.
std::string resolved(std::string text, const YamlNode& tree, std::set<std::string>& used,
                     int depth = 0) {
  for (size_t at = text.find("${"); at != std::string::npos; at = text.find("${", at)) {
    const size_t end = text.find('}', at);
    if (end == std::string::npos) break;
    const std::string path = text.substr(at + 2, end - at - 2);
    const YamlNode* node = find_at(tree, path);
    if (node == nullptr || node->kind != YamlNode::Kind::Scalar || depth > 8) {
      at = end;
      continue;
    }
    used.insert(path);
    const std::string value = resolved(node->text, tree, used, depth + 1);
    text.replace(at, end + 1 - at, value);
    at += value.size();
  }
  return text;
}

void resolve_below(YamlNode& node, const YamlNode& tree, std::set<std::string>& used) {
  node.text = resolved(std::move(node.text), tree, used);
  for (YamlNode& item : node.items) resolve_below(item, tree, used);
  for (auto& [key, child] : node.entries) resolve_below(child, tree, used);
}

// A top-level key that only others refer to has done its part.
void resolve_torchtune(YamlNode& tree, const Program& program) {
  const YamlNode original = tree;
  std::set<std::string> used;
  resolve_below(tree, original, used);
  std::erase_if(tree.entries, [&](const auto& entry) {
    return used.contains(entry.first) && program.row_of(entry.first) == nullptr;
  });
}

// --- keys ---

void take_cpu_offload(Draft& draft, const Found& found) {
  if (!is_on(found.node)) return draft.idle(found.key, std::string(kOff));
  draft.set("optimizer_offload", "cpu", found.key);
  draft.set("weight_streaming", "true", found.key);
}

void take_checkpointer(Draft& draft, const Found& found) {
  if (found.node.text.find("MetaCheckpointer") != std::string::npos)
    draft.refuse(found.key, "checkpoint_dir",
                 "snug does not read Meta's own files; give the Hugging Face folder with "
                 "--checkpoint_dir");
  else
    draft.idle(found.key, std::string(kOwnModel));
}

void take_validation_steps(Draft& draft, const Found& found) {
  if (draft.on("dataset_val"))
    take_eval_steps(draft, found);
  else
    draft.idle(found.key, "there is no dataset_val");
}

constexpr std::string_view kLossIsCrossEntropy = "snug's loss is the cross-entropy, in chunks";
constexpr std::string_view kLossesOfPairs = "DPOLoss=dpo RSOLoss=hinge";

void take_loss(Draft& draft, const Found& found) {
  static constexpr std::string_view kCrossEntropies =
      "CEWithChunkedOutputLoss LinearCrossEntropyLoss CrossEntropyLoss";
  const std::string_view name = last_word(found.node.text);
  if (const std::string_view objective = word_for(kLossesOfPairs, name); !objective.empty())
    take_objective(draft, objective, found.key,
                   {.beta = objective == "hinge" ? "loss.gamma" : "loss.beta",
                    .label_smoothing = "loss.label_smoothing"});
  else if (std::ranges::count(words_of(kCrossEntropies), name) > 0)
    draft.idle(found.key, std::string(kLossIsCrossEntropy));
  else
    refuse_objective(draft, found.key, name);
}

// Columns by other names are refused; those of pairs that snug knows are fine.
void take_column_map(Draft& draft, const Found& found) {
  const bool is_usual = std::ranges::all_of(found.node.entries, [](const auto& entry) {
    return is_pair_column(entry.first, entry.second.text);
  });
  if (is_usual)
    draft.idle(found.key, "snug reads these columns by their names");
  else
    draft.refuse(found.key, "data", std::string(kOtherRows));
}

constexpr KeyRow kTorchtuneRows[] = {
    {"output_dir", Way::Same, "out_dir"},
    {"checkpointer.checkpoint_dir", Way::Same, "checkpoint_dir"},
    {"checkpointer._component_", Way::By, "checkpoint_dir", {}, {}, take_checkpointer},
    {"checkpointer.checkpoint_files checkpointer.model_type "
     "checkpointer.output_dir checkpointer.recipe_checkpoint checkpointer.adapter_checkpoint "
     "checkpointer.safe_serialization save_adapter_weights_only keep_last_n_checkpoints "
     "enable_async_checkpointing",
     Way::Idle,
     {},
     "snug finds the files of a Hugging Face or LitGPT folder itself"},
    {"resume_from_checkpoint", Way::By, "resume", {}, {}, take_resume},
    {"tokenizer.max_seq_len", Way::Same, "train.max_seq_length"},
    {"tokenizer._component_ tokenizer.path tokenizer.merges_file tokenizer.merges_path "
     "tokenizer.vocab_path tokenizer.special_tokens_path tokenizer.prompt_template",
     Way::Idle,
     {},
     kOwnTokenizer},

    {"model._component_", Way::Read, "full"},
    {"model.lora_attn_modules model.apply_lora_to_mlp model.apply_lora_to_output", Way::Read,
     "lora_target_modules"},
    {"model.lora_rank", Way::Same, "lora_r", {}, "8"},
    {"model.lora_alpha", Way::Same, "lora_alpha", {}, "16"},
    {"model.lora_dropout", Way::Same, "lora_dropout", {}, "0.0"},
    {"model.use_dora", Way::Same, "lora_use_dora"},
    {"model.quantize_base", Way::Read, "quantize"},

    {"dataset._component_", Way::Read, "data.class_path"},
    {"dataset.source dataset.data_files", Way::Read, "data.json_path"},
    {"dataset.train_on_input", Way::Words, "data.mask_prompt", "true=false false=true"},
    {"dataset.packed", Way::Read, "data.packing"},
    {"dataset.split", Way::Read, "data.json_path"},
    {"dataset_val", Way::Read, "data.val_path"},
    {"run_val_every_n_steps", Way::By, "eval.interval", {}, {}, take_validation_steps},
    {"dataset.conversation_column dataset.conversation_style dataset.name "
     "dataset.split_across_pack shuffle collate_fn batch_size_val",
     Way::Idle,
     {},
     kOwnLoader},
    {"dataset.column_map", Way::By, "data", {}, {}, take_column_map},
    {"dataset.column dataset.new_system_prompt dataset.filter_fn", Way::Off, "data", kOtherRows},
    {"seed", Way::Same, "seed"},
    {"batch_size", Way::Same, "train.micro_batch_size"},
    {"gradient_accumulation_steps", Way::Same, "train.accumulate_grad_batches", {}, "1"},
    {"epochs", Way::Same, "train.epochs"},
    {"max_steps_per_epoch", Way::Read, "train.limit_train_batches"},
    {"clip_grad_norm", Way::Same, "train.max_norm"},

    {"optimizer._component_", Way::Read, "optimizer.class_path"},
    {"optimizer.lr", Way::Same, "optimizer.lr"},
    {"optimizer.weight_decay", Way::Same, "optimizer.weight_decay"},
    {"optimizer.betas", Way::Same, "optimizer.betas"},
    {"optimizer.eps", Way::Same, "optimizer.eps"},
    {"optimizer.momentum", Way::Same, "optimizer.momentum"},
    {"optimizer.nesterov", Way::Same, "optimizer.nesterov"},
    {"optimizer.fused optimizer.foreach", Way::Idle, {}, "the optimizer has one implementation"},
    {"optimizer_in_bwd", Way::Same, "optimizer_in_backward"},
    {"lr_scheduler._component_", Way::Read, "train.lr_schedule"},
    {"lr_scheduler.num_warmup_steps", Way::Same, "train.lr_warmup_steps", {}, "0"},
    {"lr_scheduler.num_cycles", Way::Words, "train.lr_schedule", "0.5=cosine"},
    {"loss._component_", Way::By, {}, {}, {}, take_loss},
    {"loss loss.num_output_chunks loss.ignore_index", Way::Idle, {}, kLossIsCrossEntropy},
    {"loss.beta loss.gamma", Way::Read, "objective.beta", {}, "0.1"},
    {"loss.label_smoothing", Way::Read, "objective.label_smoothing", {}, "0.0"},
    {"ref_checkpointer", Way::Read, "checkpoint_dir"},

    {"dtype", Way::Words, "precision", "bf16=bf16-true fp32=32-true"},
    {"device", Way::Words, "accelerator", "cuda=auto cpu=cpu"},
    {"enable_activation_checkpointing", Way::Words, "activation_checkpointing",
     "true=all false=none"},
    {"enable_activation_offloading", Way::Same, "activation_offload"},
    {"ac_mode ac_option enable_fp8_training fp8_recipe_name use_distributed_state_dict", Way::Off,
     "activation_checkpointing", kNoSuchTechnique},
    {"fsdp_cpu_offload fsdp.cpu_offload", Way::By, "optimizer_offload", {}, {}, take_cpu_offload},
    {"fsdp_reshard_after_forward", Way::Words, "strategy", "true=fsdp false=zero2"},
    {"tensor_parallel_dim context_parallel_dim data_parallel_shard_dim "
     "data_parallel_replicate_dim",
     Way::Read, "mesh"},
    {"custom_sharded_layers fsdp_sharding_strategy low_cpu_ram tensor_parallel_plan distributed "
     "parallelize_plan fsdp process_group_backend",
     Way::Idle,
     {},
     kOwnProcesses},
    {"compile use_flex_attention cudnn_deterministic_mode", Way::Idle, {}, kOwnKernels},
    {"metric_logger log_every_n_steps log_peak_memory_stats log_level profile_memory",
     Way::Idle,
     {},
     kOwnLog},
    {"profiler", Way::Idle, {}, "give --profile true"},

    // Recipes of other kinds
    {"model.image_size model.decoder_trainable model.encoder_trainable model.fusion_trainable "
     "tokenizer.image_size",
     Way::Off,
     {},
     "pictures have a guide of their own: docs/guide/captioning.md"},
    {"dataset.subset", Way::Off, "data", "a file has no subsets; give its rows with --data FILE"},
    {"quantizer", Way::Off, "quantize", "snug trains on quantized weights, not towards them"},
    {"teacher_model teacher_checkpointer kd_loss kd_ratio", Way::Off, "objective.name",
     kOwnDistillation},
};

// --- what several keys say ---

std::string_view component(const Draft& draft, std::string_view key, std::string& store) {
  store = draft.text(key);
  return last_word(store);
}

// Files of Phi have q, k and v in one matrix, and the gate in another with the up projection.
constexpr std::string_view kFused =
    "q_proj=qkv_proj k_proj=qkv_proj v_proj=qkv_proj gate_proj=gate_up_proj up_proj=gate_up_proj";

void take_torchtune_targets(Draft& draft) {
  std::vector<std::string> names;
  if (const Found* attention = draft.find("model.lora_attn_modules"))
    for (const YamlNode& item : attention->node.items)
      names.push_back(item.text == "output_proj" ? "o_proj" : item.text);
  if (draft.on("model.apply_lora_to_mlp"))
    names.insert(names.end(), {"gate_proj", "up_proj", "down_proj"});
  if (draft.on("model.apply_lora_to_output")) names.emplace_back("lm_head");
  const std::string_view key = "model.lora_attn_modules";
  if (draft.text("model._component_").find("models.phi") != std::string::npos) {
    std::vector<std::string> fused;
    for (const std::string& name : names) {
      const std::string_view ours = word_for(kFused, name);
      fused.emplace_back(ours.empty() ? name : ours);
    }
    // Neighbours become the same name.
    fused.erase(std::unique(fused.begin(), fused.end()), fused.end());
    if (fused != names)
      draft.differs(key, "q, k and v share an adapter, as gate and up do: Phi's files fuse them");
    names = std::move(fused);
  }
  draft.set("lora_target_modules", fmt::format("{}", fmt::join(names, ",")), key);
}

void take_torchtune_adapters(Draft& draft) {
  std::string store;
  const std::string_view model = component(draft, "model._component_", store);
  const bool quantized = model.starts_with("qlora_") || draft.on("model.quantize_base");
  const bool adapters = model.starts_with("lora_") || model.starts_with("qlora_");
  draft.set("full", adapters ? "false" : "true", "model._component_");
  if (!adapters) return;
  if (quantized) take_quantization(draft, 4, "nf4", true, "model._component_");
  take_torchtune_targets(draft);
}

// "train[:95%]" to train on, and "train[95%:]" of the same set to validate with: the share that is
// held out. Empty: they say something else.
std::string held_out_share(const Draft& draft, const YamlNode& validation) {
  static constexpr std::string_view kStart = "train[:", kEnd = "%]";
  const std::string split = draft.text("dataset.split");
  if (!split.starts_with(kStart) || !split.ends_with(kEnd)) return "";
  const std::string percent =
      split.substr(kStart.size(), split.size() - kStart.size() - kEnd.size());
  const std::optional<double> trained = parse_float(percent);
  const bool same_set =
      std::ranges::all_of(words_of("_component_ source data_files"), [&](std::string_view key) {
        return text_in(validation, key) == draft.text(fmt::format("dataset.{}", key));
      });
  if (!same_set || !trained || *trained <= 0 || *trained >= 100 ||
      text_in(validation, "split") != fmt::format("train[{}%:]", percent))
    return "";
  return float_text((100 - *trained) / 100);
}

void take_torchtune_splits(Draft& draft) {
  const Found* validation = draft.find("dataset_val");
  const std::string share =
      validation != nullptr ? held_out_share(draft, validation->node) : std::string();
  if (!share.empty()) {
    draft.set("data.val_split_fraction", share, "dataset_val");
    return draft.differs("dataset_val", "as many rows are held out, chosen at random");
  }
  if (const Found* split = draft.find("dataset.split")) take_split(draft, *split);
  if (validation == nullptr) return draft.set("data.val_split_fraction", "0", "dataset_val");
  const std::string split = text_in(validation->node, "split");
  const std::string file = existing_file(draft, text_in(validation->node, "data_files"));
  if (file.empty() || (!split.empty() && split != "train"))
    draft.refuse("dataset_val", "data", "give the held-out rows as a file with --data.val_path");
  else
    draft.set("data.val_path", file, "dataset_val");
}

void take_torchtune_data(Draft& draft) {
  const std::string_view key = "dataset._component_";
  std::string store;
  const std::string_view set = component(draft, key, store);
  static constexpr std::string_view kStyles =
      "instruct_dataset=chat chat_dataset=chat text_completion_dataset=auto "
      "preference_dataset=chat "
      "hh_rlhf_helpful_dataset=chat stack_exchange_paired_dataset=chat";
  // Where a data set of pairs comes from unless it says so.
  static constexpr std::string_view kSources =
      "hh_rlhf_helpful_dataset=RLHFlow/HH-RLHF-Helpful-standard "
      "stack_exchange_paired_dataset=lvwerra/stack-exchange-paired";
  take_torchtune_splits(draft);
  if (draft.find("dataset.train_on_input") == nullptr)
    draft.set("data.mask_prompt", set.starts_with("alpaca_") ? "false" : "true",
              "dataset.train_on_input");
  if (set.starts_with("alpaca_")) {
    draft.set("data.class_path", "Alpaca", key);
    if (set == "alpaca_dataset") draft.differs(key, "snug's Alpaca is the cleaned one");
  } else if (const std::string_view style = word_for(kStyles, set); !style.empty()) {
    draft.set("data.prompt_style", style, key);
    const bool has_file = draft.find("dataset.data_files") != nullptr;
    const std::string_view from = has_file ? "dataset.data_files" : "dataset.source";
    const std::string_view usual = word_for(kSources, set);
    const bool has_source = has_file || draft.find("dataset.source") || usual.empty();
    take_data(draft, has_source ? draft.text(from) : std::string(usual), has_source ? from : key);
    if (set == "stack_exchange_paired_dataset" && !draft.find("dataset.column_map"))
      draft.refuse(key, "data",
                   "reads the columns response_j and response_k, which snug does not know; call "
                   "them chosen and rejected");
    if (set == "instruct_dataset")
      draft.differs(key,
                    "torchtune reads the columns input and output alone; snug reads instruction "
                    "too where rows have it");
  } else if (!set.empty()) {
    draft.refuse(key, "data",
                 fmt::format("snug does not have {}; give a file with --data FILE", set));
  }
  if (draft.on("dataset.packed"))
    draft.differs("dataset.packed",
                  "train.micro_batch_size counts samples, not rows with several samples in each; "
                  "raise it for short samples");
}

void take_reference(Draft& draft) {
  const Found* reference = draft.find("ref_checkpointer");
  if (reference == nullptr) return;
  const auto plain = [](std::string path) {
    while (path.ends_with('/')) path.pop_back();
    return path;
  };
  if (plain(text_in(reference->node, "checkpoint_dir")) ==
      plain(draft.text("checkpointer.checkpoint_dir")))
    draft.idle(reference->key, std::string(kOwnReferencePass));
  else
    draft.refuse(reference->key, "", std::string(kOwnReference));
}

void finish_torchtune(Draft& draft) {
  take_reference(draft);
  take_torchtune_adapters(draft);
  take_torchtune_data(draft);
  std::string store;
  const std::string_view schedule = component(draft, "lr_scheduler._component_", store);
  if (!schedule.empty() && schedule != "get_cosine_schedule_with_warmup")
    draft.refuse(
        "lr_scheduler._component_", "train.lr_schedule",
        fmt::format("snug has no schedule {}; choose cosine, linear or constant", schedule));
  if (draft.find("lr_scheduler.num_cycles") == nullptr)
    draft.set("train.lr_schedule", schedule.empty() ? "constant" : "cosine",
              "lr_scheduler._component_");
  draft.set("train.min_lr", "0", "lr_scheduler._component_");
  const std::string optimizer = draft.text("optimizer._component_");
  take_optimizer_name(draft, optimizer, "optimizer._component_");
  if (const auto steps = draft.number("max_steps_per_epoch"); steps && *steps > 0)
    draft.set(
        "train.limit_train_batches",
        fmt::format("{:.0f}", *steps * draft.number("gradient_accumulation_steps").value_or(1)),
        "max_steps_per_epoch");
  take_mesh(draft, {{"data_parallel_replicate_dim", "dp"},
                    {"data_parallel_shard_dim", "fsdp"},
                    {"tensor_parallel_dim", "tp"},
                    {"context_parallel_dim", "cp"}});
}

}  // namespace

Program torchtune() {
  return {"torchtune", {"_component_"}, {kTorchtuneRows}, resolve_torchtune, finish_torchtune};
}

}  // namespace snug::recipe
