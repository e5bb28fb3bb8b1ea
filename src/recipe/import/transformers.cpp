// Keys of transformers' TrainingArguments (versions 4.46 and 5.23), which LLaMA-Factory and TRL
// have too. Keys that transformers has dropped are listed with those that replaced them.
// SPDX-License-Identifier: Apache-2.0
#include "recipe/import/shared.h"

namespace snug::recipe {
namespace {

using Way = KeyRow::Way;

constexpr KeyRow kTransformersRows[] = {
    {"output_dir", Way::Same, "out_dir"},
    {"per_device_train_batch_size", Way::Same, "train.micro_batch_size", {}, "8"},
    {"per_gpu_train_batch_size", Way::Same, "train.micro_batch_size"},
    {"gradient_accumulation_steps", Way::Same, "train.accumulate_grad_batches", {}, "1"},
    {"learning_rate", Way::Same, "optimizer.lr", {}, "5e-05"},
    {"max_grad_norm", Way::Same, "train.max_norm", {}, "1.0"},
    {"label_smoothing_factor", Way::Same, "train.label_smoothing"},
    {"seed", Way::Same, "seed", {}, "42"},
    {"data_seed", Way::Same, "data.seed"},
    {"logging_steps", Way::By, "train.log_interval", {}, {}, take_log_steps},
    {"save_total_limit", Way::Same, "train.keep_checkpoints"},
    {"save_steps", Way::By, "train.save_interval", {}, {}, take_save_steps},
    {"eval_steps", Way::By, "eval.interval", {}, {}, take_eval_steps},
    {"eval_on_start", Way::Same, "eval.initial_validation"},
    {"resume_from_checkpoint", Way::By, "resume", {}, {}, take_resume},
    {"dataloader_num_workers", Way::Idle, {}, kOwnLoader},
    {"use_cpu no_cuda", Way::Words, "accelerator", "true=cpu false=auto"},
    {"tf32", Way::Words, "matmul_precision", "true=high false=highest auto=high"},
    {"ddp_timeout", Way::By, "collective_timeout", {}, {}, take_timeout},

    // train.epochs and max_steps; optimizer; precision; activation_checkpointing; strategy
    {"num_train_epochs", Way::Read, "train.epochs", {}, "3"},
    {"max_steps", Way::Read, "train.max_steps"},
    {"lr_scheduler_type", Way::Read, "train.lr_schedule", {}, "linear"},
    {"lr_scheduler_kwargs", Way::Read, "train.min_lr"},
    {"warmup_steps warmup_ratio", Way::Read, "train.lr_warmup_steps"},
    {"optim", Way::Read, "optimizer.class_path", {}, "adamw_torch"},
    {"weight_decay", Way::Read, "optimizer.weight_decay", {}, "0.0"},
    {"adam_beta1", Way::Read, "optimizer.betas", {}, "0.9"},
    {"adam_beta2", Way::Read, "optimizer.betas", {}, "0.999"},
    {"adam_epsilon", Way::Read, "optimizer.eps", {}, "1e-08"},
    {"bf16 fp16", Way::Read, "precision"},
    {"gradient_checkpointing", Way::Read, "activation_checkpointing"},
    {"activation_checkpointing", Way::Same, "activation_checkpointing"},
    {"save_strategy", Way::Read, "train.save_interval"},
    {"deepspeed", Way::Read, "strategy"},

    // Without effect
    {"report_to run_name project trackio_space_id trackio_bucket_id trackio_static_space_id "
     "logging_dir",
     Way::Idle,
     {},
     kNoOnlineLogger},
    {"push_to_hub hub_token hub_private_repo hub_model_id hub_strategy hub_always_push "
     "hub_revision push_to_hub_model_id push_to_hub_organization push_to_hub_token",
     Way::Idle,
     {},
     kNoUpload},
    {"logging_strategy logging_first_step log_on_each_node logging_nan_inf_filter "
     "include_num_input_tokens_seen include_tokens_per_second log_level log_level_replica "
     "disable_tqdm skip_memory_metrics tpu_metrics_debug",
     Way::Idle,
     {},
     kOwnLog},
    {"eval_strategy evaluation_strategy eval_delay", Way::Idle, {}, kInSteps},
    {"per_device_eval_batch_size per_gpu_eval_batch_size eval_accumulation_steps "
     "prediction_loss_only eval_do_concat_batches eval_use_gather_object include_for_metrics "
     "include_inputs_for_metrics batch_eval_metrics bf16_full_eval fp16_full_eval label_names",
     Way::Idle,
     {},
     "snug validates by the loss, with micro-batches and types of training"},
    {"load_best_model_at_end", Way::Same, "train.keep_best"},
    {"metric_for_best_model", Way::By, "train.best_metric", {}, {}, take_best_metric},
    {"greater_is_better", Way::Idle, {}, kOwnMetric},
    {"save_on_each_node save_only_model save_safetensors overwrite_output_dir "
     "enable_jit_checkpoint restore_callback_states_from_checkpoint ignore_data_skip",
     Way::Idle,
     {},
     "snug writes whole checkpoints in its own format, and resumes from them exactly"},
    {"do_train do_eval do_predict", Way::Idle, {}, "the command says what is done"},
    {"use_liger_kernel", Way::By, {}, {}, {}, take_liger},
    {"torch_compile torch_compile_backend torch_compile_mode torchdynamo jit_mode_eval use_ipex "
     "liger_kernel_config torch_empty_cache_steps use_cache "
     "half_precision_backend "
     "fp16_backend fp16_opt_level",
     Way::Idle,
     {},
     kOwnKernels},
    {"gradient_checkpointing_kwargs activation_checkpointing_kwargs",
     Way::Idle,
     {},
     "recomputation has one implementation"},
    {"average_tokens_across_devices",
     Way::Idle,
     {},
     "the loss is always averaged over all tokens of a step: train.loss_normalization"},
    {"full_determinism", Way::Idle, {}, "on a CPU runs always repeat exactly"},
    {"dataloader_drop_last dataloader_pin_memory dataloader_persistent_workers "
     "dataloader_prefetch_factor dataloader_multiprocessing_context dataloader_in_order "
     "remove_unused_columns length_column_name group_by_length accelerator_config dispatch_batches "
     "split_batches train_sampling_strategy",
     Way::Idle,
     {},
     kOwnLoader},
    {"ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers ddp_static_graph "
     "ddp_backend local_rank ray_scope _n_gpu tpu_num_cores mp_parameters use_mps_device",
     Way::Idle,
     {},
     kOwnProcesses},
    {"debug past_index use_legacy_prediction_loop", Way::Idle, {}, "a switch of transformers"},

    // Refused unless off
    {"neftune_noise_alpha", Way::Same, "train.neftune_noise_alpha"},
    {"optim_args optim_target_modules parallelism_config", Way::Off, {}, kNoSuchTechnique},
    {"auto_find_batch_size", Way::Off, "train.on_oom",
     "give --train.on_oom split, or let --fit choose the micro-batch"},
    {"adafactor", Way::Off, "optimizer.class_path", "give optim: adafactor instead"},
    // Seq2SeqTrainingArguments
    {"predict_with_generate generation_max_length generation_num_beams generation_config "
     "sortish_sampler",
     Way::Idle,
     {},
     kNoGeneration},
};

}  // namespace

std::span<const KeyRow> transformers_rows() { return kTransformersRows; }

}  // namespace snug::recipe
