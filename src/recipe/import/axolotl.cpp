// axolotl (0.19): https://github.com/axolotl-ai-cloud/axolotl
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "recipe/data_sources.h"
#include "recipe/import/programs.h"
#include "recipe/import/shared.h"
#include "recipe/options/names.h"

namespace snug::recipe {
namespace {

using Way = KeyRow::Way;

constexpr std::string_view kAfterTraining =
    "snug evaluate, generate and chat do this after training";

void take_plugins(Draft& draft, const Found& found) {
  static constexpr std::string_view kKernels = "LigerPlugin CutCrossEntropyPlugin KernelsPlugin";
  for (const YamlNode& item : found.node.items) {
    const std::string_view name = last_word(item.text);
    if (std::ranges::count(words_of(kKernels), name) > 0)
      draft.idle(found.key, fmt::format("{}: {}", name, kOwnKernels));
    else if (name == "SwanLabPlugin")
      draft.idle(found.key, fmt::format("{}: {}", name, kNoOnlineLogger));
    else if (name == "LMEvalPlugin")
      draft.idle(found.key, fmt::format("{}: {}", name, kAfterTraining));
    else
      draft.refuse(found.key, "", fmt::format("{} is not part of snug; leave it out", item.text));
  }
}

constexpr std::string_view kOnlyDatasets = "snug trains on one file of rows: give it in datasets";
constexpr std::string_view kOwnSchedule = "snug's schedules are cosine, linear and constant";
constexpr std::string_view kNoSuchOptimizer = "snug does not have this optimizer";

void take_special_tokens(Draft& draft, const Found& tokens) {
  const std::string eos = text_in(tokens.node, "eos_token");
  const std::string bos = text_in(tokens.node, "bos_token");
  if (!eos.empty()) draft.set("data.eos_token", eos, tokens.key);
  if (!bos.empty())
    draft.differs(tokens.key,
                  fmt::format("bos_token {}: snug takes the one of the model's folder; if it is "
                              "another, change it in tokenizer_config.json",
                              bos));
  const YamlNode* more = find_in(tokens.node, "additional_special_tokens");
  for (const auto& [name, _] : tokens.node.entries)
    if (name != "eos_token" && name != "bos_token" && name != "additional_special_tokens")
      draft.idle(tokens.key, fmt::format("{}: {}", name, kOwnTokenizer));
  if (more != nullptr && draft.find("tokens") == nullptr) set_tokens(draft, tokens.key, {more});
}

// Those that are named and those that are listed.
void take_tokens(Draft& draft, const Found& tokens) {
  const Found* special = draft.find("special_tokens");
  const YamlNode* more =
      special != nullptr ? find_in(special->node, "additional_special_tokens") : nullptr;
  draft.differs(tokens.key, std::string(kSpecialHere));
  set_tokens(draft, tokens.key, {&tokens.node, more});
}

// Beside new tokens embedding and head train anyway.
void take_modules_to_save(Draft& draft, const Found& modules) {
  const bool are_ends = std::ranges::all_of(modules.node.items, [](const YamlNode& module) {
    return module.text == "embed_tokens" || module.text == "lm_head";
  });
  if (draft.on("tokens") && are_ends)
    draft.idle(modules.key, "embedding and head train whole beside new tokens");
  else if (is_on(modules.node))
    draft.refuse(modules.key, "lora_target_modules", std::string(kPlainAdapters));
}

constexpr KeyRow kAxolotlRows[] = {
    // Model and files
    {"base_model", Way::By, "checkpoint_dir", {}, {}, take_model},
    {"output_dir", Way::Same, "out_dir", {}, "./model-out"},
    {"resume_from_checkpoint", Way::By, "resume", {}, {}, take_resume},
    {"auto_resume_from_checkpoints", Way::Words, "resume", "true=auto false=false"},
    {"base_model_config cls_model_config type_of_model model_type trust_remote_code "
     "revision_of_model model_revision is_falcon_derived_model is_llama_derived_model "
     "is_mistral_derived_model is_qwen_derived_model low_cpu_mem_usage "
     "experimental_skip_move_to_device device device_map max_memory gpu_memory_limit "
     "mean_resizing_embeddings embeddings_skip_upcast resize_token_embeddings_to_32x",
     Way::Idle,
     {},
     kOwnModel},
    {"tokenizer_config tokenizer_use_fast tokenizer_legacy tokenizer_use_mistral_common "
     "tokenizer_type tokenizer_save_jinja_files processor_type processor_kwargs "
     "fix_untrained_tokens",
     Way::Idle,
     {},
     kOwnTokenizer},
    {"eot_tokens", Way::Idle, {}, "the end of each answer is learnt, as its template writes it"},
    {"special_tokens", Way::By, {}, {}, {}, take_special_tokens},
    {"tokens", Way::By, "tokens.add", {}, {}, take_tokens},
    {"added_tokens_overrides shrink_embeddings",
     Way::Off,
     {},
     "the words of tokens that are there stay as they are; leave it out"},
    {"overrides_of_model_config model_config overrides_of_model_kwargs model_kwargs rope_scaling "
     "s2_attention max_packed_sequence_len",
     Way::Off,
     {},
     "the model is built as its config.json says; change it there"},
    {"reinit_weights", Way::Off, "model.config", "give --model.config for random weights"},

    // Adapters and quantized weights
    {"adapter load_in_4bit load_in_8bit bnb_config_kwargs", Way::Read, "quantize"},
    {"lora_r", Way::Same, "lora_r"},
    {"lora_alpha", Way::Same, "lora_alpha"},
    {"lora_dropout", Way::Read, "lora_dropout", {}, "0.0"},
    {"lora_target_modules lora_target_linear", Way::Read, "lora_target_modules"},
    {"peft_use_dora", Way::Same, "lora_use_dora"},
    {"peft_use_rslora", Way::Same, "lora_use_rslora"},
    {"peft_init_lora_weights", Way::Words, "lora_init_weights",
     "true=default gaussian=gaussian pissa=pissa"},
    {"loraplus_lr_ratio", Way::Same, "lora_plus_lr_ratio"},
    {"loraplus_lr_embedding", Way::Idle, {}, "embeddings get no adapters"},
    {"lora_fan_in_fan_out qlora_sharded_model_loading lora_on_cpu peft_autocast_adapter_dtype "
     "peft_ensure_weight_tying merge_lora merge_method",
     Way::Idle,
     {},
     "snug loads and merges adapters its own way (snug merge)"},
    {"lora_model_dir", Way::Same, "adapter"},
    {"lora_modules_to_save", Way::By, "lora_target_modules", {}, {}, take_modules_to_save},
    {"lora_target_parameters lora_rank_pattern "
     "lora_alpha_pattern peft_layers_to_transform peft_layers_pattern peft "
     "peft_layer_replication peft_trainable_token_indices relora relora_prune_ratio "
     "relora_prune_method relora_cpu_offload jagged_restart_steps jagged_restart_warmup_steps "
     "jagged_restart_anneal_steps use_mora mora_type mora",
     Way::Off, "lora_target_modules", kPlainAdapters},
    {"gptq", Way::Idle, {}, "the model's folder says how it is quantized"},
    {"model_quantization_config model_quantization_config_kwargs use_onebitllms qat "
     "quantization fp8 fp8_config fp8_enable_fsdp_float8_all_gather "
     "llmcompressor nonexpert_quantization dsv4_fp8_nonexpert_mode dsv4_fp8_lora_kernel "
     "dsv4_shared_mlp_lora_kernel dsv4_bf16_all dsv4_fp4_grouped_mode gemma4_fp8_nonexpert "
     "gemma4_nf4_nonexpert nvfp4_merge_aware nvfp4_merge_aware_start_step",
     Way::Off, "quantize", "snug quantizes with --quantize bnb.nf4, bnb.fp4 or bnb.int8"},

    {"quantize_moe_experts", Way::Idle, {}, "experts are quantized as all linear layers are"},

    // Batches and length
    {"micro_batch_size", Way::Same, "train.micro_batch_size", {}, "1"},
    {"batch_size", Way::Same, "train.global_batch_size"},
    {"gradient_accumulation_steps", Way::Read, "train.accumulate_grad_batches", {}, "1"},
    {"num_epochs", Way::Read, "train.epochs", {}, "1"},
    {"max_steps", Way::Read, "train.max_steps"},
    {"sequence_len", Way::Same, "train.max_seq_length", {}, "512"},
    {"eval_batch_size eval_sequence_len eval_sample_packing",
     Way::Idle,
     {},
     "validation takes the micro-batches and lengths of training"},
    {"auto_find_batch_size", Way::Off, "train.on_oom",
     "give --train.on_oom split, or let --fit choose the micro-batch"},

    // Optimizer and schedule
    {"learning_rate", Way::Same, "optimizer.lr"},
    {"optimizer", Way::Read, "optimizer.class_path", {}, "adamw_torch_fused"},
    {"weight_decay", Way::Read, "optimizer.weight_decay", {}, "0.0"},
    {"adam_beta1", Way::Read, "optimizer.betas", {}, "0.9"},
    {"adam_beta2", Way::Read, "optimizer.betas", {}, "0.999"},
    {"adam_epsilon", Way::Read, "optimizer.eps", {}, "1e-08"},
    {"max_grad_norm", Way::Same, "train.max_norm", {}, "1.0"},
    {"lr_scheduler", Way::Read, "train.lr_schedule", {}, "cosine"},
    {"lr_scheduler_kwargs cosine_min_lr_ratio", Way::Read, "train.min_lr"},
    {"warmup_steps", Way::Read, "train.lr_warmup_steps"},
    {"warmup_ratio", Way::Read, "train.lr_warmup_fraction", {}, "0.03"},
    {"lr_quadratic_warmup cosine_constant_lr_ratio lr_div_factor lr_groups embedding_lr "
     "embedding_lr_scale",
     Way::Off, "train.lr_schedule", kOwnSchedule},
    {"optim_args optim_target_modules adam_beta3 adam_epsilon2 torchdistx_path dion_lr "
     "dion_momentum "
     "lisa_n_layers lisa_step_interval grokfast_alpha grokfast_lamb",
     Way::Off, "optimizer", kNoSuchOptimizer},
    {"dion_rank_fraction dion_rank_multiple_of qgalore_rank qgalore_update_proj_gap qgalore_scale "
     "qgalore_proj_type qgalore_proj_quant qgalore_proj_bits qgalore_proj_group_size "
     "qgalore_cos_threshold qgalore_gamma_proj qgalore_queue_size lisa_layers_attribute",
     Way::Idle,
     {},
     kNoSuchOptimizer},

    // Types and memory
    {"bf16 bfloat16", Way::Read, "precision", {}, "auto"},
    {"fp16 float16 float32", Way::Read, "precision"},
    {"tf32", Way::Words, "matmul_precision", "true=high false=highest auto=high"},
    {"gradient_checkpointing selective_checkpointing", Way::Read, "activation_checkpointing"},
    {"activation_offloading", Way::Words, "activation_offload",
     "true=true false=false legacy=true hidden_states=true"},
    {"gradient_checkpointing_kwargs", Way::Idle, {}, "recomputation has one implementation"},
    {"layer_offloading", Way::Same, "weight_streaming"},
    {"ple_cpu_offload", Way::Off, "weight_streaming", "give --weight_streaming"},
    {"fp32_norms fp32_norm_classes", Way::Idle, {}, "norms are always computed in float32"},

    // Data
    {"datasets", Way::Read, "data.json_path"},
    {"test_datasets", Way::Read, "data.val_path"},
    {"val_set_size", Way::By, "data.val_split_fraction", {}, {}, take_held_out},
    {"train_on_inputs", Way::Read, "data.mask_prompt"},
    {"sample_packing", Way::Read, "data.packing"},
    {"seed", Way::Same, "seed", {}, "42"},
    {"chat_template chat_template_jinja", Way::Read, "data.prompt_style"},
    {"chat_template_kwargs", Way::Idle, {}, "the template of the model's folder takes no options"},
    {"default_system_message",
     Way::Off,
     {},
     "snug adds no system text; write it into the rows, or into the template"},
    {"excess_length_strategy", Way::Read, "train.max_seq_length", {}, "drop"},
    {"pad_to_sequence_len pad_to_multiple_of sample_packing_group_size sample_packing_bin_size "
     "sample_packing_sequentially sample_packing_mp_start_method multipack_real_batches "
     "batch_flattening sample_packing_eff_est total_num_tokens total_supervised_tokens "
     "pretrain_multipack_buffer_size pretrain_multipack_attn streaming_multipack_buffer_size "
     "dataset_prepared_path dataset_processes dataset_num_proc dataset_keep_in_memory "
     "dataset_shard_num dataset_shard_idx num_dataset_shards_to_save skip_prepare_dataset "
     "shuffle_merged_datasets shuffle_before_merging_datasets dataloader_pin_memory "
     "dataloader_num_workers dataloader_prefetch_factor dataloader_drop_last "
     "remove_unused_columns group_by_length curriculum_sampling is_preprocess "
     "preprocess_iterable accelerator_config",
     Way::Idle,
     {},
     kOwnLoader},
    {"dataset_exact_deduplication",
     Way::Off,
     {},
     "snug data show counts repeated samples; take them out of the file"},
    {"min_sample_len max_prompt_len role_boundaries",
     Way::Idle,
     {},
     "every row that has something to learn is trained on"},
    {"pretraining_dataset streaming pretraining_sample_concatenation use_pose "
     "pose_split_on_token_ids pose_max_context_len pose_num_chunks",
     Way::Off, "data", kOnlyDatasets},
    {"push_dataset_to_hub hub_model_id hub_strategy hub_revision", Way::Idle, {}, kNoUpload},
    {"hf_use_auth_token", Way::Idle, {}, "give --access_token, or HF_TOKEN in the environment"},
    {"image_size image_resize_algorithm freeze_mm_modules",
     Way::Idle,
     {},
     "pictures have a guide of their own: docs/guide/captioning.md"},
    {"unfrozen_parameters", Way::Off, "model.train_parts",
     "snug trains whole components: --model.train_parts, or adapters"},

    // Many devices
    {"deepspeed fsdp_version", Way::Read, "strategy"},
    {"dp_shard_size dp_replicate_size tensor_parallel_size context_parallel_size "
     "sequence_parallel_degree expert_parallel_size",
     Way::Read, "mesh"},
    {"fsdp_final_state_dict_type", Way::Idle, {}, "snug writes one whole model"},
    {"heads_k_stride ring_attn_func deepcompile world_size local_rank ddp ddp_bucket_cap_mb "
     "ddp_broadcast_buffers ddp_find_unused_parameters use_ray ray_run_name ray_num_workers "
     "resources_per_worker",
     Way::Idle,
     {},
     kOwnProcesses},
    {"ddp_timeout", Way::By, "collective_timeout", {}, {}, take_timeout},

    // Saving, validation, logs
    {"save_steps", Way::By, "train.save_interval", {}, {}, take_save_steps},
    {"eval_steps", Way::By, "eval.interval", {}, {}, take_eval_steps},
    {"logging_steps", Way::By, "train.log_interval", {}, {}, take_log_steps},
    {"save_total_limit", Way::Same, "train.keep_checkpoints"},
    {"save_strategy", Way::Read, "train.save_interval"},
    {"saves_per_epoch evals_per_epoch eval_strategy evaluation_strategy save_first_step",
     Way::Idle,
     {},
     kInSteps},
    {"save_safetensors save_only_model dynamic_checkpoint save_compressed",
     Way::Idle,
     {},
     "snug writes safetensors, and whole checkpoints in its own format"},
    {"load_best_model_at_end", Way::Same, "train.keep_best"},
    {"metric_for_best_model", Way::By, "train.best_metric", {}, {}, take_best_metric},
    {"greater_is_better", Way::Idle, {}, kOwnMetric},
    {"early_stopping_patience", Way::Same, "train.early_stopping"},
    {"loss_watchdog_threshold loss_watchdog_patience",
     Way::Idle,
     {},
     "snug stops where the loss or the gradients are no numbers, not at a high loss"},
    {"use_tensorboard", Way::Words, "logger_name", "true=tensorboard false=csv"},
    {"use_wandb wandb_name wandb_run_id wandb_mode wandb_project wandb_entity wandb_watch "
     "wandb_log_model use_mlflow mlflow_tracking_uri mlflow_experiment_name mlflow_run_name "
     "hf_mlflow_log_artifacts use_comet comet_api_key comet_workspace comet_project_name "
     "comet_experiment_key comet_mode comet_online comet_experiment_config use_trackio "
     "trackio_project_name trackio_run_name trackio_space_id use_otel_metrics otel_metrics_host "
     "otel_metrics_port use_swanlab swanlab_project swanlab_experiment_name swanlab_workspace "
     "swanlab_mode swanlab_api_key swanlab_description swanlab_log_model swanlab_web_host "
     "swanlab_api_host swanlab_lark_webhook_url swanlab_lark_secret swanlab_log_completions "
     "swanlab_completion_log_interval swanlab_completion_max_buffer",
     Way::Idle,
     {},
     kNoOnlineLogger},
    {"profiler_steps profiler_steps_start", Way::Idle, {}, "give --profile true"},
    {"include_tokens_per_second include_tkps eval_table_size eval_max_new_tokens gc_steps "
     "gc_collect_steps torch_empty_cache_steps strict axolotl_config_path",
     Way::Idle,
     {},
     kOwnLog},
    {"do_causal_lm_eval eval_causal_lm_metrics do_bench_eval bench_dataset bench_split "
     "lm_eval_tasks lm_eval_batch_size lm_eval_post_train lm_eval_model generate_samples "
     "num_generation_samples generation_max_new_tokens generation_temperature generation_top_p "
     "generation_top_k generation_prompt_ratio generation_do_sample gradio_title gradio_share "
     "gradio_server_name gradio_server_port gradio_max_new_tokens gradio_temperature",
     Way::Idle,
     {},
     kAfterTraining},

    // Kernels
    {"plugins", Way::By, {}, {}, {}, take_plugins},
    {"liger_fused_linear_cross_entropy", Way::By, {}, {}, {}, take_liger},
    {"xformers_attention sdp_attention flex_attention flex_attn_compile_kwargs flash_attention "
     "flash_attn_cross_entropy flash_attn_rms_norm flash_attn_fuse_mlp flash_optimum "
     "sage_attention "
     "eager_attention attn_implementation gemma4_hybrid_attn_impl large_head_attention "
     "flash_attn_d512 sdpa_varlen fused_attn_kernel experts_implementation lora_mlp_kernel "
     "lora_qkv_kernel lora_o_kernel lora_embedding_kernel chunked_cross_entropy "
     "chunked_cross_entropy_num_chunks tiled_mlp tiled_mlp_num_shards tiled_mlp_use_original_mlp "
     "use_kernels torch_compile torch_compile_backend torch_compile_mode torch_compile_options "
     "llama4_linearized_experts liger_rope liger_rms_norm liger_rms_norm_gated liger_layer_norm "
     "liger_swiglu liger_glu_activation liger_cross_entropy "
     "liger_kernel_impl cut_cross_entropy expert_backend moe_grouped_backend moe_bnb_fast "
     "moe_dequant_chunk_size use_scattermoe use_sonicmoe use_dsv4_kernels use_glm_dsa_kernels",
     Way::Idle,
     {},
     kOwnKernels},
    {"neftune_noise_alpha noisy_embedding_alpha", Way::Same, "train.neftune_noise_alpha"},
    {"scaling_softmax use_eaft "
     "liger_use_token_scaling dense_mixer diffusion spectrum_top_fraction",
     Way::Off,
     {},
     kNoSuchTechnique},
    {"scaling_softmax_factor scaling_softmax_bias eaft_alpha eaft_k spectrum_model_name",
     Way::Idle,
     {},
     "belongs to a technique that is off"},

    // Other ways to train
    {"rl", Way::Read, "objective.name"},
    {"dpo_loss_type", Way::Read, "objective.name", {}, "sigmoid"},
    {"rl_beta", Way::Read, "objective.beta", {}, "0.1"},
    {"dpo_beta orpo_alpha trl", Way::Read, "objective.beta"},
    {"simpo_gamma", Way::Read, "objective.gamma", {}, "0.5"},
    {"dpo_label_smoothing", Way::Read, "objective.label_smoothing", {}, "0.0"},
    {"cpo_alpha", Way::Read, "objective.sft_weight", {}, "1.0"},
    {"rpo_alpha dpo_loss_weights", Way::Read, "objective.sft_weight"},
    {"dpo_use_weighting", Way::Off, {}, kNoSuchTechnique},
    {"dpo_norm_loss", Way::Read, "objective.length_normalized", {}, "false"},
    {"precompute_ref_log_probs", Way::Idle, {}, kOwnReferencePass},
    {"dpo_use_liger_kernel dpo_padding_free dpo_use_logits_to_keep", Way::Idle, {}, kOwnKernels},
    {"dpo_generate_during_eval vllm", Way::Idle, {}, kNoGeneration},
    {"kto_desirable_weight", Way::Read, "objective.desirable_weight", {}, "1.0"},
    {"kto_undesirable_weight", Way::Read, "objective.undesirable_weight", {}, "1.0"},
    {"center_rewards_coefficient", Way::Idle, {}, "belongs to an objective that is off"},
    {"reward_model process_reward_model ebft num_labels", Way::Off, "objective.name",
     kNoSuchObjective},
    {"trainer_cls", Way::Off, {}, kNoSuchTechnique},
};

// --- data sets ---

// Their types of rows and our prompt style; the ending of a dotted type does not matter.
constexpr std::string_view kRowTypes =
    "alpaca=alpaca chat_template=chat sharegpt=chat completion=auto";
// … and of preferences; chatml and llama3 are templates of their own.
constexpr std::string_view kPairTypes =
    "chat_template=chat chatml=chat llama3=chat passthrough=auto";
// Keys of a data set that are read, and those without an effect.
constexpr std::string_view kReadOfDatasets =
    "path type split data_files field_messages message_property_mappings message_field_role "
    "message_field_content field roles_to_train chat_template chat_template_jinja train_on_eos "
    "train_on_eot "
    "field_chosen field_rejected";
constexpr std::string_view kIdleOfDatasets =
    "ds_type name conversation roles trust_remote_code revision";

// Letters and digits, small.
std::string bare(std::string_view name) {
  std::string kept;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)))
      kept += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return kept;
}

// Their names of templates that snug has too.
constexpr std::string_view kTemplates =
    "alpaca=alpaca chatml=chatml gemma=gemma llama3=llama3 phi_3=phi3";

// A template by name takes the place of the model's own. Of those that snug does not have, most
// recipes name the one that the model has; where its name does not say so, the text that is learnt
// may be another.
void take_template(Draft& draft, std::string_view key, const std::string& name) {
  if (name.empty() || name.starts_with("tokenizer_default")) return;
  if (const std::string_view ours = word_for(kTemplates, name); !ours.empty())
    return draft.set("data.chat_template", ours, key);
  if (bare(draft.text("base_model")).find(bare(name)) != std::string::npos)
    return draft.differs(
        key, fmt::format("{}: chats are written in the template of the model's folder", name));
  draft.refuse(key, "data.chat_template",
               fmt::format("snug has no template {}: give its file, or the folder of a model that "
                           "has it, with --data.chat_template",
                           name));
}

// The template of the whole recipe or of one data set: Jinja itself, in a file or by name.
void take_template(Draft& draft, std::string_view key, const std::string& name,
                   const std::string& jinja) {
  if (jinja.empty()) return take_template(draft, key, name);
  const std::string file = jinja.find('{') == std::string::npos ? existing_file(draft, jinja) : "";
  draft.set("data.chat_template", file.empty() ? jinja : file, key);
}

// The keys of one data set; each one that says something else than the usual is refused.
void check_dataset(Draft& draft, const YamlNode& set) {
  const auto refuse = [&](std::string_view key, std::string_view why) {
    draft.refuse("datasets", "data", fmt::format("{}: {}", key, why));
  };
  const auto check = [&](std::string_view key, std::string_view usual) {
    const std::string name = text_in(set, key);
    if (!name.empty() && std::ranges::count(words_of(usual), name) == 0) refuse(key, kOtherRows);
  };
  check("field_messages", "messages conversations conversation");
  for (const std::string role : {"chosen", "rejected"})
    if (const std::string name = text_in(set, "field_" + role);
        !name.empty() && !is_pair_column(role, name))
      refuse("field_" + role, kOtherRows);
  check("message_field_role", "role from");
  check("message_field_content", "content value");
  check("field", "text");
  if (const YamlNode* names = find_in(set, "message_property_mappings"))
    for (const auto& [ours, theirs] : names->entries)
      if (!((ours == "role" && (theirs.text == "role" || theirs.text == "from")) ||
            (ours == "content" && (theirs.text == "content" || theirs.text == "value"))))
        refuse("message_property_mappings", kOtherRows);
  const YamlNode* roles = find_in(set, "roles_to_train");
  if (roles != nullptr && roles->items.empty())
    refuse("roles_to_train", "nothing would be learnt; leave it out");
  for (const char* key : {"train_on_eos", "train_on_eot"})
    if (const std::string when = text_in(set, key); !when.empty() && when != "turn")
      refuse(key, "snug learns the end of each answer that it learns, which is turn");
  if (roles != nullptr)
    for (const YamlNode& role : roles->items)
      if (role.text != "assistant" && role.text != "gpt")
        refuse("roles_to_train",
               "snug learns the assistant's answers, or with "
               "--data.mask_prompt false everything");
  const std::string split = text_in(set, "split");
  if (const bool has_splits = names_hub_set(text_in(set, "path"));
      !split.empty() && split != "train" && (!has_splits || split.find('[') != std::string::npos))
    refuse("split", kOneSplit);
  std::vector<std::string> idle;
  for (const auto& [key, value] : set.entries) {
    if (key == "name" && names_hub_set(text_in(set, "path"))) continue;
    if (std::ranges::count(words_of(kIdleOfDatasets), key) > 0)
      idle.push_back(key);
    else if (std::ranges::count(words_of(kReadOfDatasets), key) == 0 && is_on(value))
      refuse(key, "snug does not read this key of a data set; leave it out");
  }
  if (!idle.empty())
    draft.idle("datasets", fmt::format("{}: a file's rows say what they are, and every answer is "
                                       "learnt with its end",
                                       fmt::join(idle, ", ")));
}

// Columns and formats of a data set of preferences, in place of a type by name: "field_chosen",
// "chosen_format".
void check_pair_format(Draft& draft, const YamlNode& type) {
  for (const auto& [key, value] : type.entries) {
    const size_t line = key.find('_');
    const bool is_field = key.starts_with("field_");
    const std::string role = is_field ? key.substr(line + 1) : key.substr(0, line);
    const bool is_usual = is_field ? is_pair_column(role, value.text) || value.text == role
                                   : value.text == "{" + role + "}";
    if (is_on(value) && !is_usual)
      draft.refuse("datasets", "data", fmt::format("{} is {}; {}", key, value.text, kOtherRows));
  }
}

// The prompt style of a data set's type; empty: refused. Rows of preferences say themselves what
// they hold.
std::string style_of(Draft& draft, const YamlNode& set) {
  const std::string type = text_in(set, "type");
  const std::string stem = type.substr(0, type.find_first_of(".:"));
  const bool has_pairs = draft.on("rl");
  if (has_pairs)
    if (const YamlNode* own = find_in(set, "type"); own != nullptr && !own->entries.empty()) {
      check_pair_format(draft, *own);
      return "auto";
    }
  const std::string_view style = word_for(has_pairs ? kPairTypes : kRowTypes, stem);
  if (style.empty())
    draft.refuse("datasets", "data.prompt_style",
                 has_pairs
                     ? fmt::format("type {}: snug has chat_template, chatml, llama3, passthrough "
                                   "and columns by name; choose with --data.prompt_style",
                                   type.empty() ? "is missing" : type)
                     : fmt::format("type {}: snug has alpaca, chat_template and completion; "
                                   "choose with --data.prompt_style",
                                   type.empty() ? "with a format of its own" : type));
  return std::string(style);
}

// A data set's own template, by name and as Jinja; both empty: it has none.
std::pair<std::string, std::string> template_of(const Draft& draft, const YamlNode& set) {
  const std::string type = text_in(set, "type");
  const std::string stem = type.substr(0, type.find('.'));
  if (draft.on("rl") && (stem == "chatml" || stem == "llama3")) return {stem, ""};
  return {text_in(set, "chat_template"), text_in(set, "chat_template_jinja")};
}

void take_datasets(Draft& draft) {
  const Found *found = draft.find("datasets"), *tests = draft.find("test_datasets");
  const bool has_one_test = tests != nullptr && tests->node.items.size() == 1;
  const std::string test_file =
      has_one_test ? existing_file(draft, text_in(tests->node.items[0], "path")) : std::string();
  if (tests != nullptr && (test_file.empty() || found == nullptr))
    draft.refuse("test_datasets", "data.val_path", "give one file with --data.val_path");
  if (found == nullptr) return;
  std::vector<DataKeys> sets;
  for (const YamlNode& set : found->node.items) {
    check_dataset(draft, set);
    const YamlNode* files = find_in(set, "data_files");
    const std::string file = files == nullptr           ? text_in(set, "path")
                             : files->items.size() == 1 ? files->items[0].text
                                                        : files->text;
    DataKeys& keys = sets.emplace_back(data_keys(draft, file, "datasets"));
    add_split(keys, text_in(set, "split"), text_in(set, "name"));
    const std::string style = style_of(draft, set);
    if (!style.empty()) keys.emplace_back("prompt_style", style);
  }
  // Their test file has rows of the first set's kind, and is all there is to validate on.
  for (DataKeys& keys : sets)
    if (!test_file.empty())
      keys.emplace_back(&keys == &sets.front() ? DataKeys::value_type{"val_path", test_file}
                                               : DataKeys::value_type{"val_split_fraction", "0"});
  set_data(draft, sets, "datasets");
}

// A data set's own template comes before that of all. There is one for all data sets.
void take_chat_keys(Draft& draft) {
  const std::pair<std::string, std::string> none,
      of_all = {draft.text("chat_template"), draft.text("chat_template_jinja")};
  std::set<std::pair<std::string, std::string>> own;
  if (const Found* sets = draft.find("datasets"))
    for (const YamlNode& set : sets->node.items) {
      const std::pair<std::string, std::string> of_set = template_of(draft, set);
      const std::string type = text_in(set, "type");
      const bool has_chats = of_set != none || type.starts_with("chat_template") ||
                             type.starts_with("sharegpt") || sets->node.items.size() == 1;
      if (has_chats) own.insert(of_set);
    }
  if (own.contains(none)) {
    own.erase(none);
    own.insert(of_all);
  }
  if (own.size() > 1)
    return draft.refuse("datasets", "data.chat_template",
                        "the data sets have different chat templates, and snug learns one: "
                        "choose it with --data.chat_template");
  const auto& [name, jinja] = own.empty() ? of_all : *own.begin();
  take_template(draft, own.empty() || *own.begin() == of_all ? "chat_template" : "datasets", name,
                jinja);
}

// --- what several keys say ---

void take_axolotl_adapters(Draft& draft) {
  const std::string adapter = draft.text("adapter");
  if (!adapter.empty() && adapter != "lora" && adapter != "qlora")
    draft.refuse("adapter", "full", fmt::format("snug has lora and qlora, not {}", adapter));
  draft.set("full", adapter.empty() ? "true" : "false", "adapter");
  const Found* bnb = draft.find("bnb_config_kwargs");
  const auto bnb_text = [&](std::string_view key, std::string usual) {
    const std::string text = bnb != nullptr ? text_in(bnb->node, key) : "";
    return text.empty() ? usual : text;
  };
  if (draft.on("load_in_4bit"))
    take_quantization(draft, 4, bnb_text("bnb_4bit_quant_type", "nf4"),
                      bnb_text("bnb_4bit_use_double_quant", "true") == "true", "load_in_4bit");
  else if (draft.on("load_in_8bit"))
    take_quantization(draft, 8, "", false, "load_in_8bit");
  if (draft.on("lora_target_linear"))
    draft.set("lora_target_modules", "all-linear", "lora_target_linear");
  else
    take_targets(draft, "lora_target_modules");
}

// axolotl hands its keys on to TRL's trainers.
void take_rl(Draft& draft) {
  if (!draft.on("rl")) {
    idle_all(draft,
             "dpo_loss_type dpo_loss_weights rl_beta dpo_beta orpo_alpha trl simpo_gamma "
             "dpo_label_smoothing dpo_norm_loss cpo_alpha rpo_alpha kto_desirable_weight "
             "kto_undesirable_weight",
             kNoPreferences);
    return draft.set("lora_dropout", draft.text("lora_dropout"), "lora_dropout");
  }
  take_no_dropout(draft, "rl");
  const std::string rl = draft.text("rl");
  const std::string objective =
      rl == "dpo" ? take_dpo_losses(draft, "dpo_loss_type", "dpo_loss_weights")
                  : std::string(word_for("ipo=ipo orpo=orpo simpo=simpo kto=kto", rl));
  if (objective.empty()) {
    if (rl != "dpo") refuse_objective(draft, "rl", rl);
    return;
  }
  const Found* trl = draft.find("trl");
  const std::string beta = trl != nullptr ? text_in(trl->node, "beta") : "";
  PreferenceKeys keys{.beta = "rl_beta", .gamma = "simpo_gamma"};
  for (const std::string_view other : {"dpo_beta", "orpo_alpha"})
    if (draft.find(keys.beta) == nullptr && draft.find(other) != nullptr) keys.beta = other;
  if (!beta.empty()) keys.beta = {};
  if (rl == "dpo")
    keys.label_smoothing = "dpo_label_smoothing";
  else
    idle_all(draft, "dpo_label_smoothing", "axolotl has it for rl: dpo");
  keys.desirable_weight = "kto_desirable_weight";
  keys.undesirable_weight = "kto_undesirable_weight";
  take_objective(draft, objective, "rl", keys);
  if (!beta.empty()) draft.set("objective.beta", beta, "trl");
  if (trl != nullptr) draft.idle("trl", "beta alone counts for this objective");
  if (objective == "simpo") take_sft_weight(draft, draft.text("cpo_alpha"), "cpo_alpha");
  if (draft.on("rpo_alpha")) take_sft_weight(draft, draft.text("rpo_alpha"), "rpo_alpha");
  if (objective == "kto") draft.differs("rl", std::string(kOtherReferencePoint));
  if (objective == "orpo")
    draft.differs("rl",
                  "the chosen answer's own loss is the mean over its tokens; TRL takes the mean "
                  "over the tokens of prompts and chosen answers of a micro-batch");
  if (objective != "dpo")
    idle_all(draft, "dpo_norm_loss", "axolotl has it for rl: dpo");
  else if (draft.on("dpo_norm_loss"))
    draft.set("objective.length_normalized", "true", "dpo_norm_loss");
  if (objective == "dpo" && draft.on("dpo_label_smoothing"))
    draft.differs("dpo_label_smoothing",
                  "pairs are smoothed; TRL 1 does not where the loss is sigmoid");
}

void finish_axolotl(Draft& draft) {
  take_axolotl_adapters(draft);
  take_rl(draft);
  const bool adapters = draft.on("adapter");
  const bool sharded = take_sharding(draft);
  if (draft.on("float32") ||
      (!draft.on("bf16") && draft.find("bf16") != nullptr && draft.on("float16")))
    draft.refuse(draft.on("float32") ? "float32" : "float16", "precision",
                 "give --precision 32-true or 16-true");
  // Weights are loaded in the type of the products. peft keeps adapters in float32 beside them, and
  // so do DeepSpeed and FSDP the weights that they update.
  take_precision(draft, {.in_16_bits = true, .with_float32_copies = adapters || sharded});
  if (draft.on("selective_checkpointing"))
    draft.set("activation_checkpointing", "selective", "selective_checkpointing");
  else
    take_checkpointing(draft, "gradient_checkpointing");
  if (draft.text("gradient_checkpointing").starts_with("offload"))
    draft.set("activation_offload", "true", "gradient_checkpointing");
  if (draft.find("batch_size") == nullptr)
    draft.set("train.accumulate_grad_batches", draft.text("gradient_accumulation_steps"),
              "gradient_accumulation_steps");
  take_length(draft, "num_epochs");
  take_schedule(draft, "lr_scheduler");
  take_optimizer(draft, "optimizer");
  take_saving(draft);
  take_mesh(draft, {{"dp_replicate_size", "dp"},
                    {"dp_shard_size", "fsdp"},
                    {"tensor_parallel_size", "tp"},
                    {"context_parallel_size", "cp"},
                    {"sequence_parallel_degree", "cp"},
                    {"expert_parallel_size", "ep"}});
  take_datasets(draft);
  take_chat_keys(draft);
  if (draft.find("val_set_size") == nullptr && draft.find("test_datasets") == nullptr)
    draft.set("data.val_split_fraction", "0", "val_set_size");
  const bool learns_prompts = draft.on("train_on_inputs") && !draft.on("rl");
  draft.set("data.mask_prompt", learns_prompts ? "false" : "true", "train_on_inputs");
  if (draft.text("excess_length_strategy") != "truncate")
    draft.differs("excess_length_strategy",
                  "samples longer than sequence_len are truncated, not left out");
  if (draft.on("sample_packing"))
    draft.differs("sample_packing",
                  "here too no padding is computed, but train.micro_batch_size counts samples, not "
                  "rows of sequence_len with several samples in each; raise it for short samples");
  else if (draft.find("sample_packing") != nullptr)
    draft.idle("sample_packing", "samples lie end to end without padding; the losses are the same");
}

}  // namespace

Program axolotl() {
  return {"axolotl",
          {"base_model", "sequence_len", "lora_target_linear"},
          {kAxolotlRows, fsdp_rows()},
          nullptr,
          finish_axolotl};
}

}  // namespace snug::recipe
