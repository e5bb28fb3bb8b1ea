// Unsloth (2026.10): https://github.com/unslothai/unsloth
// Its notebooks' calls FastLanguageModel.from_pretrained, get_peft_model and SFTConfig with their
// arguments as keys, flat or in a section a call; and the file of its command, unsloth train.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "recipe/import/programs.h"
#include "recipe/import/shared.h"

namespace snug::recipe {
namespace {

using Way = KeyRow::Way;

constexpr std::string_view kOnlyPictures =
    "chooses among the layers of models with pictures or sound; a text model has none of them";
constexpr std::string_view kTokenIsElsewhere =
    "give --access_token, or HF_TOKEN in the environment";
constexpr std::string_view kAllLinear = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj";

// What both say about adapters.
constexpr KeyRow kAdapterRows[] = {
    {"lora_alpha", Way::Same, "lora_alpha", {}, "16"},
    {"lora_dropout", Way::Same, "lora_dropout", {}, "0.0"},
    {"target_modules", Way::Read, "lora_target_modules", {}, kAllLinear},
    {"use_rslora", Way::Same, "lora_use_rslora"},
    {"use_dora", Way::Same, "lora_use_dora"},
    {"load_in_4bit", Way::Read, "quantize", {}, "true"},
    {"finetune_vision_layers finetune_language_layers finetune_attention_modules "
     "finetune_mlp_modules finetune_audio_layers vision_all_linear",
     Way::Idle,
     {},
     kOnlyPictures},
    {"loftq_config use_loftq", Way::Off, "lora_init_weights",
     "snug starts adapters by default, gaussian or pissa: --lora_init_weights"},
    {"max_seq_length", Way::Read, "train.max_seq_length", {}, "2048"},
};

constexpr KeyRow kCallRows[] = {
    // from_pretrained
    {"model_name model", Way::By, "checkpoint_dir", {}, {}, take_model},
    {"dtype float32_mixed_precision bf16 fp16", Way::Read, "precision"},
    {"load_in_8bit load_in_16bit", Way::Read, "quantize"},
    {"full_finetuning", Way::Read, "full"},
    {"load_in_fp8 qat_scheme", Way::Off, "quantize",
     "snug quantizes with --quantize bnb.nf4, bnb.fp4 or bnb.int8"},
    {"rope_scaling resize_model_vocab",
     Way::Off,
     {},
     "the model is built as its config.json says; change it there"},
    {"token", Way::Idle, {}, kTokenIsElsewhere},
    {"offload_embedding", Way::Idle, {}, "give --weight_streaming for weights in host memory"},
    {"device_map device_map_planner_kwargs fix_tokenizer trust_remote_code revision "
     "use_exact_model_name text_only on_model_resolved auto_model return_logits whisper_language "
     "whisper_task",
     Way::Idle,
     {},
     kOwnModel},
    {"fast_inference gpu_memory_utilization float8_kv_cache max_lora_rank disable_log_stats",
     Way::Idle,
     {},
     kNoGeneration},
    {"unsloth_tiled_mlp unsloth_force_compile fullgraph", Way::Idle, {}, kOwnKernels},

    // get_peft_model
    {"r", Way::Same, "lora_r", {}, "16"},
    {"init_lora_weights", Way::Words, "lora_init_weights",
     "true=default gaussian=gaussian pissa=pissa"},
    {"bias", Way::Off, {}, "biases are not trained beside adapters; leave it out"},
    {"layers_to_transform layers_pattern finetune_last_n_layers modules_to_save target_parameters",
     Way::Off, "lora_target_modules", kPlainAdapters},
    {"use_gradient_checkpointing", Way::Read, "activation_checkpointing", {}, "unsloth"},
    {"checkpoint_skip_layers", Way::Off, "activation_checkpointing",
     "snug recomputes every block, none, or as many as --fit finds"},
    {"offload_layers", Way::Off, "weight_streaming", "give --weight_streaming true"},
    {"random_state", Way::Read, "seed"},
    {"temporary_location ensure_weight_tying task_type",
     Way::Idle,
     {},
     "snug makes and keeps adapters its own way"},

    // SFTConfig, where Unsloth's defaults are not TRL's, and its own arguments
    {"per_device_train_batch_size", Way::Same, "train.micro_batch_size", {}, "4"},
    {"gradient_accumulation_steps", Way::Same, "train.accumulate_grad_batches", {}, "2"},
    {"learning_rate", Way::Same, "optimizer.lr", {}, "5e-05"},
    {"weight_decay", Way::Read, "optimizer.weight_decay", {}, "0.001"},
    {"optim", Way::Read, "optimizer.class_path", {}, "adamw_8bit"},
    {"warmup_ratio", Way::Read, "train.lr_warmup_fraction", {}, "0.1"},
    {"seed", Way::Read, "seed", {}, "3407"},
    {"max_length", Way::Read, "train.max_seq_length"},
    {"train_on_responses_only", Way::Read, "data.mask_prompt"},
    {"loraplus_lr_ratio", Way::Same, "lora_plus_lr_ratio"},
    {"embedding_learning_rate q_galore_config", Way::Off, "optimizer", kNoSuchTechnique},
    {"beta DPOConfig DPOTrainer ORPOConfig ORPOTrainer CPOConfig CPOTrainer KTOConfig KTOTrainer "
     "GRPOConfig GRPOTrainer RewardConfig RewardTrainer",
     Way::Off, "objective.name",
     "of Unsloth's calls snug reads those for SFTConfig; choose another objective with "
     "--objective"},
};

// The keys of unsloth train, without its sections.
constexpr KeyRow kCommandRows[] = {
    {"model", Way::By, "checkpoint_dir", {}, {}, take_model},
    {"dataset local_dataset", Way::Read, "data.json_path"},
    {"format_type", Way::Words, "data.prompt_style",
     "auto=auto alpaca=alpaca chatml=chat sharegpt=chat conversational=chat raw=auto", "auto"},
    {"training_type", Way::Read, "full", {}, "lora"},
    {"output_dir", Way::Same, "out_dir", {}, "./outputs"},
    {"num_epochs", Way::Read, "train.epochs", {}, "3"},
    {"max_steps", Way::Read, "train.max_steps"},
    {"learning_rate", Way::Same, "optimizer.lr", {}, "0.0002"},
    {"batch_size", Way::Same, "train.micro_batch_size", {}, "2"},
    {"gradient_accumulation_steps", Way::Same, "train.accumulate_grad_batches", {}, "4"},
    {"warmup_steps", Way::Read, "train.lr_warmup_steps", {}, "5"},
    {"save_steps", Way::By, "train.save_interval", {}, {}, take_save_steps},
    {"weight_decay", Way::Read, "optimizer.weight_decay", {}, "0.01"},
    {"random_seed", Way::Same, "seed", {}, "3407"},
    {"packing", Way::Read, "data.packing"},
    {"train_on_completions", Way::Words, "data.mask_prompt", "true=true false=false", "false"},
    {"gradient_checkpointing", Way::Read, "activation_checkpointing", {}, "unsloth"},
    {"lora_r", Way::Same, "lora_r", {}, "64"},
    {"enable_tensorboard", Way::Words, "logger_name", "true=tensorboard false=csv"},
    {"enable_wandb wandb_project wandb_token tensorboard_dir", Way::Idle, {}, kNoOnlineLogger},
    {"hf_token", Way::Idle, {}, kTokenIsElsewhere},
    // Those of Unsloth's Studio
    {"optim", Way::Read, "optimizer.class_path", {}, "adamw_8bit"},
    {"lr_scheduler_type", Way::Read, "train.lr_schedule", {}, "linear"},
    {"log_frequency", Way::By, "train.log_interval", {}, {}, take_log_steps},
    {"max_grad_norm", Way::Same, "train.max_norm", {}, "1.0"},
};

// --- what several keys say ---

constexpr std::string_view kSections =
    "model lora peft training data logging from_pretrained get_peft_model FastLanguageModel "
    "SFTConfig SFTTrainer TrainingArguments";

// A section only says which call its keys belong to.
void dissolve_sections(YamlNode& tree, const Program&) {
  std::vector<std::pair<std::string, YamlNode>> flat;
  for (auto& [key, node] : tree.entries)
    if (node.kind == YamlNode::Kind::Map && std::ranges::count(words_of(kSections), key) > 0)
      std::ranges::move(node.entries, std::back_inserter(flat));
    else
      flat.emplace_back(std::move(key), std::move(node));
  tree.entries = std::move(flat);
}

// Weights of 4 bits only where they are frozen.
void take_weights(Draft& draft, bool full, std::string_view full_key) {
  draft.set("full", full ? "true" : "false", full_key);
  take_targets(draft, "target_modules");
  const bool wide = draft.on("load_in_8bit") || draft.on("load_in_16bit");
  if (full && draft.find("load_in_4bit") != nullptr)
    draft.idle("load_in_4bit", "all weights are trained");
  else if (!full && draft.on("load_in_8bit"))
    take_quantization(draft, 8, "", false, "load_in_8bit");
  else if (!full && !wide && draft.on("load_in_4bit"))
    take_quantization(draft, 4, "nf4", true, "load_in_4bit");
}

// "unsloth" recomputes, and keeps the inputs of the blocks in host memory from 512 tokens on.
void take_length_and_recomputation(Draft& draft, std::string_view key) {
  const std::string_view length = draft.find("max_length") ? "max_length" : "max_seq_length";
  draft.set("train.max_seq_length", draft.text(length), length);
  draft.set("activation_checkpointing", draft.on(key) ? "all" : "none", key);
  if (draft.text(key) == "unsloth" && draft.number("max_seq_length").value_or(0) >= 512)
    draft.set("activation_offload", "true", key);
}

// Adapters are float32 beside weights of 16 bits. All weights are trained in bfloat16 without
// float32 copies, unless float32 is asked for.
void take_call_precision(Draft& draft, bool full) {
  const std::string dtype = draft.text("dtype");
  const bool is_fp16 =
      draft.on("fp16") || (dtype.ends_with("float16") && !dtype.ends_with("bfloat16"));
  const bool wide =
      dtype.ends_with("float32") || (full && (is_fp16 || draft.on("float32_mixed_precision")));
  const std::string_view key = draft.find("dtype") ? "dtype" : is_fp16 ? "fp16" : "bf16";
  draft.set("precision", fmt::format("{}-{}", is_fp16 ? "16" : "bf16", wide ? "mixed" : "true"),
            key);
  if (!wide && !full) draft.set("optimizer.master_weights", "true", key);
}

void finish_calls(Draft& draft) {
  const bool full = draft.on("full_finetuning");
  take_weights(draft, full, "full_finetuning");
  take_length_and_recomputation(draft, draft.on("gradient_checkpointing") &&
                                               draft.find("gradient_checkpointing") != nullptr &&
                                               !draft.on("use_gradient_checkpointing")
                                           ? "gradient_checkpointing"
                                           : "use_gradient_checkpointing");
  take_call_precision(draft, full);
  take_sharding(draft);
  take_length(draft, "num_train_epochs");
  take_schedule(draft, "lr_scheduler_type");
  take_optimizer(draft, "optim");
  take_saving(draft);
  const std::string_view seed =
      draft.find("seed") == nullptr && draft.find("random_state") ? "random_state" : "seed";
  draft.set("seed", draft.text(seed), seed);
  take_sft_arguments(draft, "train_on_responses_only");
}

void finish_command(Draft& draft) {
  take_weights(draft, draft.text("training_type") == "full", "training_type");
  take_length_and_recomputation(draft, "gradient_checkpointing");
  draft.set("precision", "bf16-true", "dtype");
  if (draft.text("training_type") != "full") draft.set("optimizer.master_weights", "true", "dtype");
  take_length(draft, "num_epochs");
  take_schedule(draft, "lr_scheduler_type");
  take_optimizer(draft, "optim");
  const Found* files = draft.find("local_dataset");
  if (files != nullptr && files->node.items.size() > 1)
    draft.refuse("local_dataset", "data",
                 "snug trains on one file; join their rows and give it with --data FILE");
  else if (files != nullptr)
    take_data(draft, files->node.items.empty() ? files->node.text : files->node.items[0].text,
              "local_dataset");
  else if (const std::string name = draft.text("dataset"); !name.empty())
    take_data(draft, name, "dataset");
  draft.set("data.val_split_fraction", "0", "dataset");
  if (draft.on("packing"))
    draft.differs("packing",
                  "train.micro_batch_size counts samples, not rows of max_seq_length with several "
                  "samples in each; raise it for short samples");
}

}  // namespace

Program unsloth() {
  return {"Unsloth",
          {"from_pretrained", "get_peft_model", "full_finetuning", "use_gradient_checkpointing",
           "load_in_16bit", "random_state", "train_on_responses_only", "model.model_name",
           "model.load_in_4bit", "model.full_finetuning", "model.max_seq_length", "lora.r"},
          {kCallRows, kAdapterRows, sft_rows(), trl_rows(), transformers_rows(), fsdp_rows()},
          dissolve_sections,
          finish_calls};
}

Program unsloth_train() {
  return {"Unsloth (unsloth train)",
          {"training.training_type", "training.batch_size", "training.random_seed", "lora.lora_r",
           "data.format_type", "training.num_epochs"},
          {kCommandRows, kAdapterRows},
          dissolve_sections,
          finish_command};
}

}  // namespace snug::recipe
