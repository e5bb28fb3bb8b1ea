// The rows of finetune_full and finetune_lora, theme by theme, in the order of --help.
// SPDX-License-Identifier: Apache-2.0
#include <iterator>

#include "config/names.h"
#include "config/rows.h"

namespace snug::config {
namespace {

constexpr std::string_view kModelTheme = "Model and results";
constexpr std::string_view kTraining = "Training";
constexpr std::string_view kEvaluationTheme = "Evaluation";
constexpr std::string_view kOptimizer = "Optimizer";
constexpr std::string_view kMemory = "Memory";
constexpr std::string_view kDevices = "Many devices";
constexpr std::string_view kLora = "LoRA";

std::vector<Row> model_rows(Recipe& r) {
  return {
      {.theme = kModelTheme,
       .key = "checkpoint_dir",
       .slot = &r.checkpoint_dir,
       .help = "the model to start from: a Hugging Face or LitGPT directory, or a GGUF file",
       .kind = TextKind::File,
       .aliases = {"model_name", "model"},
       .positional = true,
       .common = true},
      {.theme = kModelTheme,
       .key = "out_dir",
       .slot = &r.out_dir,
       .help = "where the run writes its model, checkpoints, metrics and run.json",
       .kind = TextKind::Directory,
       .common = true},
      {.theme = kModelTheme,
       .key = "model.config",
       .slot = &r.model.config,
       .help = "a config.json: start from random weights of that shape instead of a checkpoint",
       .kind = TextKind::File,
       .common = true},
      {.theme = kModelTheme,
       .key = "model.train_parts",
       .slot = &r.model.train_parts,
       .help = "which parts train: all, or some of vision, qformer, projection and language as in "
               "qformer,projection; the others stay as they are. With adapters: those that train "
               "whole beside them (all: none)",
       .choices = {"all", "vision", "qformer", "projection", "language", "LIST"},
       .open = true,
       .joins_list = true},
      {.theme = kModelTheme,
       .key = "model.dropout",
       .slot = &r.model.dropout,
       .help = "share of activations that a model with dropout drops in training; none: what its "
               "config.json says",
       .min = 0,
       .max = 0.99},
      {.theme = kModelTheme,
       .key = "precision",
       .slot = &r.precision,
       .help =
           "-true: weights and arithmetic in that type; -mixed: float32 weights, products in that "
           "type",
       .choices = precision_names(),
       .aliases = {"bf16", "fp16"},
       .rewordings = {{"bf16", "true", "bf16-mixed"}, {"fp16", "true", "16-mixed"}},
       .common = true,
       .normalise = normalise_precision},
      {.theme = kModelTheme,
       .key = "matmul_precision",
       .slot = &r.matmul_precision,
       .help =
           "how GPUs from compute capability 8.0 on multiply float32 numbers; high: with 10 of "
           "their 23 bits after the point (TF32), on tensor cores; highest: with all bits, on an "
           "A100 8 times slower; medium: as high. A CPU always takes all bits",
       .choices = {"highest", "high", "medium"}},
      {.theme = kModelTheme,
       .key = "resume",
       .slot = &r.resume,
       .help =
           "go on from the latest checkpoint in out_dir (true), the same if there is one (auto), "
           "or from a checkpoint directory",
       .choices = {"false", "true", "auto", "DIR"},
       .open = true,
       .kind = TextKind::Directory,
       .common = true,
       .may_stand_alone = true,
       .normalise = normalise_flag},
      {.theme = kModelTheme,
       .key = "logger_name",
       .slot = &r.logger_name,
       .help = "metrics besides run.json: csv writes metrics.csv, tensorboard event files",
       .choices = {"csv", "tensorboard"},
       .quiet_choices = online_loggers()},
      {.theme = kModelTheme,
       .key = "seed",
       .slot = &r.seed,
       .help = "seed of random weights, dropout and the order of samples"},
      {.theme = kModelTheme,
       .key = "access_token",
       .slot = &r.access_token,
       .help = "hub token for data sets that need one (else HF_TOKEN of the environment)",
       .secret = true},
      {.theme = kModelTheme,
       .key = "full",
       .slot = &r.full,
       .help = "train all weights; always so for finetune_full, and for plan unless an option of "
               "LoRA is given",
       .aliases = {"use_lora"},
       .rewordings = {{"use_lora", "true", "false"}, {"use_lora", "false", "true"}},
       .common = true},
  };
}

std::vector<Row> train_rows(TrainOptions& t) {
  return {
      {.theme = kTraining,
       .key = "train.epochs",
       .slot = &t.epochs,
       .help = "passes over the training data",
       .min = 1,
       .aliases = {"max_epochs", "epochs"},
       .rewordings = {{"max_epochs", "-1", ""}},
       .common = true},
      {.theme = kTraining,
       .key = "train.max_steps",
       .slot = &t.max_steps,
       .help = "stop after this many optimizer steps",
       .min = 1,
       .aliases = {"max_steps"},
       .rewordings = {{"max_steps", "-1", ""}},
       .common = true},
      {.theme = kTraining,
       .key = "train.max_tokens",
       .slot = &t.max_tokens,
       .help = "stop after this many tokens",
       .min = 1,
       .aliases = {"max_tokens"}},
      {.theme = kTraining,
       .key = "train.global_batch_size",
       .slot = &t.global_batch_size,
       .help = "samples per optimizer step over all devices",
       .min = 1,
       .aliases = {"global_batch_size"},
       .common = true},
      {.theme = kTraining,
       .key = "train.micro_batch_size",
       .slot = &t.micro_batch_size,
       .help =
           "samples per forward pass on one device; divides the samples each device gets a step",
       .min = 1,
       .aliases = {"batch_size", "micro_batch_size"},
       .common = true},
      {.theme = kTraining,
       .key = "train.accumulate_grad_batches",
       .slot = &t.accumulate_grad_batches,
       .help = "micro-batches per optimizer step on each device, instead of global_batch_size",
       .min = 1,
       .aliases = {"accumulate_grad_batches"}},
      {.theme = kTraining,
       .key = "train.limit_train_batches",
       .slot = &t.limit_train_batches,
       .help = "micro-batches of an epoch on each device: a share of them (1.0: all) or a whole "
               "number of them",
       .aliases = {"limit_train_batches"}},
      {.theme = kTraining,
       .key = "train.max_seq_length",
       .slot = &t.max_seq_length,
       .help = "cut samples to this many tokens; none: as long as the model allows",
       .min = 2,
       .aliases = {"max_seq_length"},
       .common = true},
      {.theme = kTraining,
       .key = "train.lr_warmup_steps",
       .slot = &t.lr_warmup_steps,
       .help = "optimizer steps over which the learning rate rises from 0; in a run that has no "
               "more steps than that a tenth of them",
       .min = 0,
       .aliases = {"lr_warmup_steps"},
       .null_means = "0"},
      {.theme = kTraining,
       .key = "train.lr_warmup_fraction",
       .slot = &t.lr_warmup_fraction,
       .help = "warm-up as a share of one epoch, instead of lr_warmup_steps",
       .min = 0,
       .max = 1},
      {.theme = kTraining,
       .key = "train.min_lr",
       .slot = &t.min_lr,
       .help = "where the cosine after the warm-up ends; a tenth of optimizer.lr where the default "
               "would be above that rate",
       .min = 0},
      {.theme = kTraining,
       .key = "train.max_norm",
       .slot = &t.max_norm,
       .help = "clip gradients to this global norm; none: no clipping",
       .min = 0},
      {.theme = kTraining,
       .key = "train.loss_normalization",
       .slot = &t.loss_normalization,
       .help =
           "global: mean over the loss tokens of the global batch, so that accumulation equals the "
           "large batch; micro: LitGPT's mean of micro-batch means",
       .choices = {"global", "micro"}},
      {.theme = kTraining,
       .key = "train.label_smoothing",
       .slot = &t.label_smoothing,
       .help =
           "share of each target's probability that goes to all tokens alike; validation counts "
           "without it",
       .min = 0,
       .max = 1},
      {.theme = kTraining,
       .key = "train.z_loss",
       .slot = &t.z_loss,
       .help = "weight of log(sum(exp(logits)))^2 in the loss, which keeps logits near 0 (1e-4 is "
               "usual)",
       .min = 0},
      {.theme = kTraining,
       .key = "train.save_interval",
       .slot = &t.save_interval,
       .help = "optimizer steps between resumable checkpoints; none: no checkpoints",
       .min = 1,
       .aliases = {"enable_checkpointing"},
       .rewordings = {{"enable_checkpointing", "true", "1000"},
                      {"enable_checkpointing", "false", ""}},
       .common = true},
      {.theme = kTraining,
       .key = "train.save_model",
       .slot = &t.save_model,
       .help = "write the trained model at the end",
       .aliases = {"save_model"}},
      {.theme = kTraining,
       .key = "train.keep_checkpoints",
       .slot = &t.keep_checkpoints,
       .help = "resumable checkpoints to keep: older ones are deleted once a newer one is whole; "
               "none: all",
       .min = 1},
      {.theme = kTraining,
       .key = "train.log_interval",
       .slot = &t.log_interval,
       .help = "optimizer steps between lines of the log",
       .min = 1},
      {.theme = kTraining,
       .key = "train.tie_embeddings",
       .slot = &t.tie_embeddings,
       .help = "for pretraining only; a fine-tuned model keeps what its config.json says"},
  };
}

std::vector<Row> eval_rows(EvalOptions& e) {
  return {
      {.theme = kEvaluationTheme,
       .key = "eval.interval",
       .slot = &e.interval,
       .help = "optimizer steps between validations",
       .min = 1},
      {.theme = kEvaluationTheme,
       .key = "eval.max_iters",
       .slot = &e.max_iters,
       .help = "validation batches at most",
       .min = 1},
      {.theme = kEvaluationTheme,
       .key = "eval.max_new_tokens",
       .slot = &e.max_new_tokens,
       .help = "length of a sample answer at most",
       .min = 1},
      {.theme = kEvaluationTheme,
       .key = "eval.num_samples",
       .slot = &e.num_samples,
       .help = "held-out questions answered before and after training",
       .min = 0},
      {.theme = kEvaluationTheme,
       .key = "eval.initial_validation",
       .slot = &e.initial_validation,
       .help = "validate before the first step"},
      {.theme = kEvaluationTheme,
       .key = "eval.final_validation",
       .slot = &e.final_validation,
       .help = "validate after the last step"},
      {.theme = kEvaluationTheme,
       .key = "eval.evaluate_example",
       .slot = &e.evaluate_example,
       .help = "which held-out question is answered first: first, random or its index",
       .choices = {"first", "random", "INDEX"},
       .open = true},
  };
}

std::vector<Row> optimizer_rows(Recipe& r) {
  OptimizerOptions& o = r.optimizer;
  return {
      {.theme = kOptimizer,
       .key = "optimizer.class_path",
       .slot = &o.name,
       .help = "a short name or a class path (torch.optim.AdamW); choosing one loads its class's "
               "defaults for the keys below",
       .choices = optimizer_names(),
       .shown = "optimizer",
       .aliases = {"optimizer", "optimizer.name", "optim"},
       .common = true,
       .normalise = normalise_optimizer,
       .selected = [&o] { o = optimizer_defaults(o.name); }},
      {.theme = kOptimizer,
       .key = "optimizer.lr",
       .slot = &o.lr,
       .help = "highest learning rate",
       .min = 0,
       .aliases = {"lr"},
       .common = true},
      {.theme = kOptimizer,
       .key = "optimizer.weight_decay",
       .slot = &o.weight_decay,
       .help = "decoupled from the gradient; sgd adds it to the gradient",
       .min = 0,
       .aliases = {"weight_decay"}},
      {.theme = kOptimizer,
       .key = "optimizer.betas",
       .slot = PairSlot{&o.beta1, &o.beta2},
       .help = "decay of the moments (adamw, adamw_8bit, lion)",
       .min = 0,
       .max = 1},
      {.theme = kOptimizer,
       .key = "optimizer.eps",
       .slot = &o.eps,
       .help = "added to the root of the second moment (adamw, adamw_8bit)",
       .min = 0},
      {.theme = kOptimizer,
       .key = "optimizer.momentum",
       .slot = &o.momentum,
       .help = "sgd only",
       .min = 0,
       .max = 1},
      {.theme = kOptimizer,
       .key = "optimizer.nesterov",
       .slot = &o.nesterov,
       .help = "sgd only; wants momentum"},
      {.theme = kOptimizer,
       .key = "optimizer.state_dtype",
       .slot = &o.state_dtype,
       .help =
           "type of the moments (adamw, sgd, lion); auto: the weights' type, float32 for float16",
       .choices = {"auto", "float32", "bfloat16"}},
      {.theme = kOptimizer,
       .key = "optimizer.master_weights",
       .slot = &o.master_weights,
       .help = "keep float32 copies of 16-bit weights and update those: 4 bytes a parameter"},
      {.theme = kOptimizer,
       .key = "optimizer.stochastic_rounding",
       .slot = &o.stochastic_rounding,
       .help = "round updated bfloat16 weights up or down by chance, so that small updates are not "
               "lost; seeded by seed"},
  };
}

std::vector<Row> memory_rows(Recipe& r) {
  return {
      {.theme = kMemory,
       .key = "activation_checkpointing",
       .slot = &r.activation_checkpointing,
       .help =
           "all: keep only each block's input and run its forward again on the way back; every:K "
           "or a list (0,2,8-11): these blocks only; selective: keep the results of products, "
           "compute norms again",
       .choices = {"none", "all", "selective", "every:K", "LIST"},
       .open = true,
       .aliases = {"act_ckpt"},
       .rewordings = {{"act_ckpt", "true", "all"}, {"act_ckpt", "false", "none"}},
       .common = true,
       .joins_list = true},
      {.theme = kMemory,
       .key = "activation_offload",
       .slot = &r.activation_offload,
       .help = "what a block keeps for the way back waits in host memory"},
      {.theme = kMemory,
       .key = "optimizer_in_backward",
       .slot = &r.optimizer_in_backward,
       .help = "update a block as soon as its gradients are there, and free them; auto: where that "
               "changes neither numbers nor speed, which is on one device, without "
               "optimizer_offload and with one micro-batch a step; not with train.max_norm, "
               "precision 16-mixed or train.on_oom split",
       .automatic = &r.optimizer_in_backward_is_auto},
      {.theme = kMemory,
       .key = "optimizer_offload",
       .slot = &r.optimizer_offload,
       .help = "cpu: optimizer states and updates in host memory; gradients go there, weights come "
               "back; disk:FOLDER: as cpu, with the states in a file on that disk",
       .choices = {"none", "cpu", "disk:FOLDER"},
       .open = true,
       .common = true},
      {.theme = kMemory,
       .key = "delayed_parameter_update",
       .slot = &r.delayed_parameter_update,
       .help = "the host updates while the device already runs the next step, whose weights are "
               "then one update late; wants optimizer_offload"},
      {.theme = kMemory,
       .key = "weight_streaming",
       .slot = &r.weight_streaming,
       .help = "weights in host memory too, on the device one block at a time; wants "
               "optimizer_offload",
       .common = true},
      {.theme = kMemory,
       .key = "offload_prefetch",
       .slot = &r.offload_prefetch,
       .help = "what is offloaded travels one block ahead of its use, which takes one block's room "
               "more; auto: on cuda",
       .choices = {"auto", "true", "false"},
       .may_stand_alone = true,
       .normalise = normalise_flag},
      {.theme = kMemory,
       .key = "fit",
       .slot = &r.fit,
       .help = "choose micro-batch, memory techniques and the mesh of several devices: the fastest "
               "that fit; what the recipe gives stays as it is",
       .common = true},
      {.theme = kMemory,
       .key = "fit_disk",
       .slot = &r.fit_disk,
       .help = "let fit put optimizer states into a file in this folder (optimizer_offload "
               "disk:FOLDER) where nothing fits with them in memory",
       .kind = TextKind::Directory},
      {.theme = kMemory,
       .key = "fit_delay",
       .slot = &r.fit_delay,
       .help = "let fit choose delayed_parameter_update, with which another training is done"},
      {.theme = kMemory,
       .key = "host_memory",
       .slot = &r.host_memory,
       .help =
           "memory beside the device that plans and fit count on, and that a run's plan may not "
           "pass; none: this machine's where it is planned for, otherwise what the device's "
           "profile says, or else 4 times a GPU's memory and 64 GiB at least, which a plan may "
           "pass "
           "with a warning",
       .min = kLeastMemory,
       .kind = TextKind::Bytes},
      {.theme = kMemory,
       .key = "force",
       .slot = &r.force,
       .help = "train although the plan does not fit into memory_budget or host_memory"},
      {.theme = kMemory,
       .key = "train.on_oom",
       .slot = &r.train.on_oom,
       .help =
           "when a micro-batch does not fit: stop and say what would fit, or split it and go on",
       .choices = {"stop", "split"}},
  };
}

std::vector<Row> device_rows(Recipe& r) {
  return {
      {.theme = kDevices,
       .key = "devices",
       .slot = &r.devices,
       .help = "devices per machine, each with a process of its own; auto: all GPUs it has",
       .choices = {"NUMBER", "auto"},
       .open = true,
       .common = true},
      {.theme = kDevices, .key = "num_nodes", .slot = &r.num_nodes, .help = "machines", .min = 1},
      {.theme = kDevices,
       .key = "hosts",
       .slot = &r.hosts,
       .help = "names of the machines, each with its number of devices, as in a:4,b:4; mpirun "
               "reaches them by ssh",
       .joins_list = true},
      {.theme = kDevices,
       .key = "hostfile",
       .slot = &r.hostfile,
       .help = "the same as a host file of Open MPI's; wants num_nodes",
       .kind = TextKind::File},
      {.theme = kDevices,
       .key = "collective_timeout",
       .slot = &r.collective_timeout,
       .help = "seconds a device waits for another one before the run ends with an error",
       .min = 1},
      {.theme = kDevices,
       .key = "strategy",
       .slot = &r.strategy,
       .help = "what each device holds a part of; ddp: of nothing; zero1: optimizer states; zero2: "
               "gradients too; fsdp: weights too; hybrid: as fsdp within a machine, copies between "
               "machines; auto: fsdp. Names of Lightning, DeepSpeed and FSDP are taken "
               "(deepspeed_stage_2_offload, SHARD_GRAD_OP)",
       .choices = {"auto", "ddp", "zero1", "zero2", "fsdp", "hybrid"},
       .open = true,
       .common = true,
       .normalise = normalise_strategy},
      {.theme = kDevices,
       .key = "mesh",
       .slot = &r.mesh,
       .help = "how many devices along each axis, instead of what the strategy makes of them: dp "
               "copies, fsdp shards, tp tensor, pp pipeline, cp context (each has part of the "
               "tokens of the same samples), as in dp=2,fsdp=4",
       .joins_list = true},
      {.theme = kDevices,
       .key = "sequence_parallel",
       .slot = &r.sequence_parallel,
       .help = "tp: between layers each device keeps the hidden states of its share of the tokens "
               "only; false: of all"},
      {.theme = kDevices,
       .key = "pipeline_schedule",
       .slot = &r.pipeline_schedule,
       .help = "pp: 1f1b runs a micro-batch back as soon as its loss is there, so that few are "
               "under way at once; gpipe runs all of a step forward first",
       .choices = {"1f1b", "gpipe"}},
      {.theme = kDevices,
       .key = "pipeline_interleave",
       .slot = &r.pipeline_interleave,
       .help = "pp: stretches of layers that each device has. More of them shorten the time in "
               "which devices wait for the first and the last micro-batch, and send more",
       .min = 1,
       .max = 64},
      {.theme = kDevices,
       .key = "forward_prefetch",
       .slot = &r.forward_prefetch,
       .help = "fsdp: the next block's weights travel while this one's forward runs, which takes "
               "one block's room more"},
      {.theme = kDevices,
       .key = "backward_prefetch",
       .slot = &r.backward_prefetch,
       .help = "fsdp: the same on the way back"},
      {.theme = kDevices,
       .key = "overlap_reduction",
       .slot = &r.overlap_reduction,
       .help = "a block's gradients are summed over devices while the block before it computes its "
               "own, which takes one block's room more"},
  };
}

std::vector<Row> lora_rows(Recipe& r) {
  LoraOptions& l = r.lora;
  std::vector<Row> rows = {
      {.key = "lora_r", .slot = &l.r, .help = "rank of the adapters", .min = 1, .common = true},
      {.key = "lora_alpha", .slot = &l.alpha, .help = "scale: alpha / rank", .min = 1},
      {.key = "lora_dropout",
       .slot = &l.dropout,
       .help = "dropout on the adapters' input",
       .min = 0,
       .max = 0.99},
      {.key = "lora_query", .slot = &l.query, .help = "adapters on the query projection"},
      {.key = "lora_key", .slot = &l.key, .help = "adapters on the key projection"},
      {.key = "lora_value", .slot = &l.value, .help = "adapters on the value projection"},
      {.key = "lora_projection", .slot = &l.projection, .help = "adapters on attention's output"},
      {.key = "lora_mlp", .slot = &l.mlp, .help = "adapters on the MLP's matrices"},
      {.key = "lora_head", .slot = &l.head, .help = "adapters on the output head"},
      {.key = "lora_target_modules",
       .slot = &l.target_modules,
       .help = "layers that get adapters instead of lora_query to lora_head: names such as "
               "q_proj,v_proj, all-linear, or a regular expression for whole names",
       .kind = TextKind::Verbatim,
       .common = true,
       .joins_list = true},
      {.key = "lora_use_rslora",
       .slot = &l.use_rslora,
       .help = "rank-stabilized scale: alpha / sqrt(rank)"},
      {.key = "lora_use_dora",
       .slot = &l.use_dora,
       .help = "DoRA: train the length of each row of the weights as well"},
      {.key = "lora_init_weights",
       .slot = &l.init_weights,
       .help = "how adapters start: A uniform (default) or gaussian, B zero; pissa: with the "
               "weights' largest singular values, which the base weights then lack",
       .choices = {"default", "gaussian", "pissa"}},
      {.key = "lora_plus_lr_ratio",
       .slot = &l.plus_lr_ratio,
       .help = "LoRA+: learning rate of B over that of A; 16 is the paper's advice",
       .min = 1},
      {.key = "quantize",
       .slot = &r.quantize,
       .help = "store the frozen weights of linear layers in 4 or 8 bits (QLoRA)",
       .choices = {"bnb.nf4", "bnb.nf4-dq", "bnb.fp4", "bnb.fp4-dq", "bnb.int8",
                   "bnb.int8-training"},
       .aliases = {"use_qlora"},
       .rewordings = {{"use_qlora", "true", "bnb.nf4"}, {"use_qlora", "false", ""}},
       .common = true},
  };
  for (Row& row : rows) {
    row.theme = kLora;
    row.lora_only = true;
  }
  return rows;
}

}  // namespace

std::vector<Row> recipe_rows(Recipe& r) {
  std::vector<Row> rows = model_rows(r);
  const auto append = [&rows](std::vector<Row> more) {
    rows.insert(rows.end(), std::make_move_iterator(more.begin()),
                std::make_move_iterator(more.end()));
  };
  append(data_rows(r.data));
  append(train_rows(r.train));
  append(optimizer_rows(r));
  append(eval_rows(r.eval));
  append(memory_rows(r));
  append(device_rows(r));
  append(lora_rows(r));
  append(machine_rows(r.accelerator, r.memory_budget, r.num_threads, r.verbose));
  return rows;
}

}  // namespace snug::config
