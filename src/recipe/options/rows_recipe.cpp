// The rows of finetune_full and finetune_lora, theme by theme, in the order of --help.
// SPDX-License-Identifier: Apache-2.0
#include <iterator>

#include "recipe/hub_models.h"
#include "recipe/options/names.h"
#include "recipe/options/rows.h"
#include "recipe/tables/objectives.h"
#include "recipe/tables/optimizers.h"
#include "recipe/techniques/technique.h"

namespace snug::recipe {
namespace {

constexpr std::string_view kModelTheme = "Model and results";
constexpr std::string_view kTraining = "Training";
constexpr std::string_view kEvaluationTheme = "Evaluation";
constexpr std::string_view kOptimizer = "Optimizer";
constexpr std::string_view kObjective = "Objective";
constexpr std::string_view kMemory = "Memory";
constexpr std::string_view kDevices = "Many devices";
constexpr std::string_view kLora = "LoRA";

std::vector<Row> model_rows(Recipe& r) {
  return {
      {.theme = kModelTheme,
       .key = "checkpoint_dir",
       .slot = &r.checkpoint_dir,
       .help = "the model to start from: a Hugging Face or LitGPT directory, a GGUF file, or a "
               "name such as Qwen/Qwen3-8B or qwen3-8b for checkpoints/Qwen/Qwen3-8B",
       .kind = TextKind::File,
       .aliases = {"model_name", "model"},
       .positional = true,
       .common = true,
       .normalise = model_folder},
      {.theme = kModelTheme,
       .key = "out_dir",
       .slot = &r.out_dir,
       .help = "where the run writes its model, checkpoints, metrics and run.json",
       .kind = TextKind::Directory,
       .common = true},
      {.theme = kModelTheme,
       .key = "model.config",
       .slot = &r.model.config,
       .help = "a config.json, or a name that snug models lists: start from random weights of "
               "that shape instead of a checkpoint",
       .kind = TextKind::File,
       .common = true},
      {.theme = kModelTheme,
       .key = "model.train_parts",
       .slot = &r.model.train_parts,
       .help = "model components to train: all, or some of vision, qformer, projection and "
               "language, as in qformer,projection; the others stay frozen. With adapters: "
               "components to train in full beside them (all: none)",
       .choices = {"all", "vision", "qformer", "projection", "language", "LIST"},
       .open = true,
       .joins_list = true},
      {.theme = kModelTheme,
       .key = "model.dropout",
       .slot = &r.model.dropout,
       .help = "dropout rate in training, for models that have dropout; none: the rate in the "
               "model's config.json",
       .min = 0,
       .max = 0.99},
      {.theme = kModelTheme,
       .key = "precision",
       .slot = &r.precision,
       .help = "-true: weights and arithmetic in this type; -mixed: float32 weights where they "
               "train, matrix products in this type",
       .choices = choices_of<Precision>(),
       .aliases = {"bf16", "fp16"},
       .rewordings = {{"bf16", "true", "bf16-mixed"}, {"fp16", "true", "16-mixed"}},
       .common = true,
       .normalise = normalise_precision},
      {.theme = kModelTheme,
       .key = "frozen_dtype",
       .slot = &r.frozen_dtype,
       .help =
           "type of frozen matrices under -mixed precision; auto: that of products, to which "
           "they are rounded anyway, so that the losses are the same; float32: twice the memory",
       .choices = choices_of<FrozenType>()},
      {.theme = kModelTheme,
       .key = "matmul_precision",
       .slot = &r.matmul_precision,
       .help = "precision of float32 matrix products on GPUs of compute capability 8.0 or later; "
               "high: TF32 on tensor cores, which keeps 10 of the 23 mantissa bits; highest: all "
               "bits, 8 times slower on an A100; medium: same as high. A CPU always uses all bits",
       .choices = choices_of<MatmulPrecision>()},
      {.theme = kModelTheme,
       .key = "resume",
       .slot = &r.resume,
       .help = "resume from the latest checkpoint in out_dir (true), do so only if there is one "
               "(auto), or resume from the given checkpoint directory",
       .choices = {"false", "true", "auto", "DIR"},
       .open = true,
       .kind = TextKind::Directory,
       .common = true,
       .may_stand_alone = true,
       .normalise = normalise_flag},
      {.theme = kModelTheme,
       .key = "logger_name",
       .slot = &r.logger_name,
       .help = "metrics to write besides run.json; csv: metrics.csv; tensorboard: event files",
       .choices = choices_of<Logger>(),
       .quiet_choices = online_loggers()},
      {.theme = kModelTheme,
       .key = "log_memory",
       .slot = &r.log_memory,
       .help =
           "memory by phase at steps 1, 2, 51, 101 and so on; step: of the first micro-batch, in a "
           "table at the end; micro_batch: of every micro-batch, also as it is measured",
       .choices = choices_of<LogMemory>()},
      {.theme = kModelTheme,
       .key = "profile",
       .slot = &r.profile,
       .help = "profile the second step: write its times and memory to trace.json in out_dir, for "
               "Perfetto or chrome://tracing"},
      {.theme = kModelTheme,
       .key = "seed",
       .slot = &r.seed,
       .help = "seed for all that is random: weights, dropout, and the split and order of samples "
               "unless data.seed is given",
       .min = 0,
       .max = kMostSeed},
      {.theme = kModelTheme,
       .key = "access_token",
       .slot = &r.access_token,
       .help = "Hugging Face token for gated data sets; none: HF_TOKEN from the environment",
       .secret = true},
      {.theme = kModelTheme,
       .key = "full",
       .slot = &r.full,
       .help = "train all weights instead of adapters; always true for finetune_full, and for plan "
               "unless a LoRA option is given",
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
       .max = kMostEpochs,
       .aliases = {"max_epochs", "epochs"},
       .rewordings = {{"max_epochs", "-1", ""}},
       .common = true},
      {.theme = kTraining,
       .key = "train.max_steps",
       .slot = &t.max_steps,
       .help = "stop after N optimizer steps",
       .min = 1,
       .max = kMostSteps,
       .aliases = {"max_steps"},
       .rewordings = {{"max_steps", "-1", ""}},
       .common = true},
      {.theme = kTraining,
       .key = "train.max_tokens",
       .slot = &t.max_tokens,
       .help = "stop after N tokens",
       .min = 1,
       .max = 1e15,
       .aliases = {"max_tokens"}},
      {.theme = kTraining,
       .key = "train.global_batch_size",
       .slot = &t.global_batch_size,
       .help = "samples per optimizer step, over all devices",
       .min = 1,
       .max = kMostSamplesAStep,
       .aliases = {"global_batch_size"},
       .common = true},
      {.theme = kTraining,
       .key = "train.micro_batch_size",
       .slot = &t.micro_batch_size,
       .help = "samples per forward pass on one device; must divide the samples that each device "
               "gets per step",
       .min = 1,
       .max = kMostSamplesAtOnce,
       .aliases = {"batch_size", "micro_batch_size"},
       .common = true},
      {.theme = kTraining,
       .key = "train.accumulate_grad_batches",
       .slot = &t.accumulate_grad_batches,
       .help = "micro-batches per optimizer step on each device, instead of global_batch_size",
       .min = 1,
       .max = kMostSamplesAStep,
       .aliases = {"accumulate_grad_batches"}},
      {.theme = kTraining,
       .key = "train.limit_train_batches",
       .slot = &t.limit_train_batches,
       .help = "micro-batches per epoch on each device: a share (1.0: all) or a whole number",
       .aliases = {"limit_train_batches"}},
      {.theme = kTraining,
       .key = "train.max_seq_length",
       .slot = &t.max_seq_length,
       .help = "truncate samples to N tokens; none: the longest that the model allows",
       .min = 2,
       .max = kMostTokens,
       .aliases = {"max_seq_length"},
       .common = true},
      {.theme = kTraining,
       .key = "train.lr_warmup_steps",
       .slot = &t.lr_warmup_steps,
       .help = "optimizer steps over which the learning rate rises from 0; in a run of N steps or "
               "fewer: a tenth of them",
       .min = 0,
       .max = kMostSteps,
       .aliases = {"lr_warmup_steps"},
       .null_means = "0"},
      {.theme = kTraining,
       .key = "train.lr_warmup_fraction",
       .slot = &t.lr_warmup_fraction,
       .help = "warm-up as a share of the run's steps, instead of lr_warmup_steps",
       .min = 0,
       .max = 1},
      {.theme = kTraining,
       .key = "train.lr_schedule",
       .slot = &t.lr_schedule,
       .help =
           "how the learning rate goes on after the warm-up: down to min_lr along half a cosine "
           "or a straight line, or constant",
       .choices = choices_of<LrSchedule>()},
      {.theme = kTraining,
       .key = "train.min_lr",
       .slot = &t.min_lr,
       .help = "learning rate at the end of the decay; a tenth of optimizer.lr if the "
               "default would exceed optimizer.lr",
       .min = 0,
       .max = kMostRate},
      {.theme = kTraining,
       .key = "train.max_norm",
       .slot = &t.max_norm,
       .help = "clip gradients to this global norm; none or 0: do not clip",
       .min = 0,
       .max = 1e9},
      {.theme = kTraining,
       .key = "train.loss_normalization",
       .slot = &t.loss_normalization,
       .help = "how to average the loss; global: over all loss tokens of the global batch, so that "
               "accumulation equals one large batch; micro: mean of the micro-batch means, as in "
               "LitGPT",
       .choices = choices_of<LossNormalization>()},
      {.theme = kTraining,
       .key = "train.label_smoothing",
       .slot = &t.label_smoothing,
       .help = "label smoothing: share of each target's probability that is spread evenly over all "
               "tokens; validation does not use it",
       .min = 0,
       .max = 1},
      {.theme = kTraining,
       .key = "train.neftune_noise_alpha",
       .slot = &t.neftune_noise_alpha,
       .help =
           "NEFTune: noise on the embeddings of tokens while training, uniform up to "
           "alpha / sqrt(tokens of the sample * hidden size) (5 to 15 are usual); none: without",
       .min = 0,
       .max = 1000},
      {.theme = kTraining,
       .key = "train.z_loss",
       .slot = &t.z_loss,
       .help = "z-loss: weight of log(sum(exp(logits)))^2 in the loss, which keeps logits small "
               "(1e-4 is usual)",
       .min = 0,
       .max = 1e3},
      {.theme = kTraining,
       .key = "train.router_aux_loss_coef",
       .slot = &t.router_aux_loss_coef,
       .help = "weight of the loss that balances a mixture's experts, of each micro-batch by "
               "itself; none: the config's, if its output_router_logits is true; validation does "
               "not use it",
       .min = 0,
       .max = 1e3},
      {.theme = kTraining,
       .key = "train.save_interval",
       .slot = &t.save_interval,
       .help = "optimizer steps between resumable checkpoints; none: no checkpoints",
       .min = 1,
       .max = kMostSteps,
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
       .key = "train.save_last_state",
       .slot = &t.save_last_state,
       .help = "write a checkpoint of the last step too, from which a finished run can be trained "
               "further; none: where checkpoints and the model are written and it takes at most a "
               "tenth of the free disk space"},
      {.theme = kTraining,
       .key = "train.early_stopping",
       .slot = &t.early_stopping,
       .help = "stop after so many validations in a row (eval.interval) that are not better than "
               "the best one before; none: all steps",
       .min = 1,
       .max = 1e6},
      {.theme = kTraining,
       .key = "train.keep_best",
       .slot = &t.keep_best,
       .help = "write the model whenever a validation is the best so far, and not after the last "
               "step: out_dir/final is the best one"},
      {.theme = kTraining,
       .key = "train.best_metric",
       .slot = &t.best_metric,
       .help = "by what a validation is better than another, for early_stopping and keep_best: "
               "loss, or the accuracy of objectives that compare or sort",
       .choices = choices_of<BestMetric>()},
      {.theme = kTraining,
       .key = "train.keep_checkpoints",
       .slot = &t.keep_checkpoints,
       .help = "resumable checkpoints to keep; older ones are deleted once a newer one is "
               "complete; none: keep all",
       .min = 1,
       .max = 1e6},
      {.theme = kTraining,
       .key = "train.log_interval",
       .slot = &t.log_interval,
       .help =
           "optimizer steps between log lines and between rows of metrics.csv; of a run of more "
           "than 200 steps there is, after the first 20, at most one line in ten seconds",
       .min = 1,
       .max = kMostSteps},
      {.theme = kTraining,
       .key = "train.tie_embeddings",
       .slot = &t.tie_embeddings,
       .help = "for pretraining only; a fine-tuned model follows its config.json"},
  };
}

std::vector<Row> eval_rows(EvalOptions& e) {
  return {
      {.theme = kEvaluationTheme,
       .key = "eval.interval",
       .slot = &e.interval,
       .help = "optimizer steps between validations",
       .min = 1,
       .max = kMostSteps},
      {.theme = kEvaluationTheme,
       .key = "eval.max_iters",
       .slot = &e.max_iters,
       .help = "validation batches to use, at most N; of a mix, as many of each source",
       .min = 1,
       .max = kMostSteps},
      {.theme = kEvaluationTheme,
       .key = "eval.max_new_tokens",
       .slot = &e.max_new_tokens,
       .help = "tokens in a sample answer, at most N",
       .min = 1,
       .max = kMostTokens},
      {.theme = kEvaluationTheme,
       .key = "eval.num_samples",
       .slot = &e.num_samples,
       .help = "held-out questions to answer before and after training",
       .min = 0,
       .max = 1000},
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
       .help = "held-out question to answer first: first, random or an index",
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
       .help = "short name or class path (torch.optim.AdamW); choosing one sets the keys below to "
               "its defaults",
       .choices = choices_of<OptimizerName>(),
       .shown = "optimizer",
       .aliases = {"optimizer", "optimizer.name", "optim"},
       .common = true,
       .normalise = normalise_optimizer,
       .selected = [&o] { o = optimizer_defaults(o.name); }},
      {.theme = kOptimizer,
       .key = "optimizer.lr",
       .slot = &o.lr,
       .help = "highest learning rate; unless given that of the optimizer, but with AdamW on a "
               "checkpoint 2e-5 where all weights train, and for preferences 1e-6, or 1e-5 for "
               "adapters",
       .min = 0,
       .max = kMostRate,
       .aliases = {"lr"},
       .common = true},
      {.theme = kOptimizer,
       .key = "optimizer.weight_decay",
       .slot = &o.weight_decay,
       .help = "weight decay, decoupled from the gradient; sgd adds it to the gradient",
       .min = 0,
       .max = kMostRate,
       .aliases = {"weight_decay"}},
      {.theme = kOptimizer,
       .key = "optimizer.betas",
       .slot = PairSlot{&o.beta1, &o.beta2},
       .help = "decay rates of the moments (adamw, adamw_8bit, lion)",
       .min = 0,
       .max = 1},
      {.theme = kOptimizer,
       .key = "optimizer.eps",
       .slot = &o.eps,
       .help = "epsilon added to the root of the second moment (adamw, adamw_8bit)",
       .min = 1e-30,
       .max = 1},
      {.theme = kOptimizer,
       .key = "optimizer.momentum",
       .slot = &o.momentum,
       .help = "momentum, for sgd only",
       .min = 0,
       .max = 1},
      {.theme = kOptimizer,
       .key = "optimizer.nesterov",
       .slot = &o.nesterov,
       .help = "Nesterov momentum, for sgd only; needs momentum above 0"},
      {.theme = kOptimizer,
       .key = "optimizer.state_dtype",
       .slot = &o.state_dtype,
       .help = "type of the moments (adamw, sgd, lion); auto: the type of the weights, but float32 "
               "for float16",
       .choices = choices_of<StateType>()},
      {.theme = kOptimizer,
       .key = "optimizer.master_weights",
       .slot = &o.master_weights,
       .help =
           "keep float32 copies of 16-bit weights and update the copies: 4 bytes per parameter"},
      {.theme = kOptimizer,
       .key = "optimizer.stochastic_rounding",
       .slot = &o.stochastic_rounding,
       .help = "round updated bfloat16 weights up or down at random, so that small updates are not "
               "lost; uses seed"},
  };
}

std::vector<Row> objective_rows(Recipe& r) {
  ObjectiveOptions& o = r.objective;
  return {
      {.theme = kObjective,
       .key = "objective.name",
       .slot = &o.name,
       .help =
           "what training minimises: sft learns answers; classification learns each text's "
           "label; distill learns answers as another model would give them; kto learns from rows "
           "with an answer and whether it is good; the others from rows with a chosen and a "
           "rejected answer. Choosing one sets the keys below to its "
           "defaults",
       .choices = choices_of<ObjectiveName>(),
       .shown = "objective",
       .aliases = {"objective"},
       .common = true,
       .selected = [&o] { o = objective_defaults(o.name); }},
      {.theme = kObjective,
       .key = "objective.beta",
       .slot = &o.beta,
       .help = "how far answers may move from the reference: less with a larger one; for ipo and "
               "hinge the distance at which a pair is learnt; the weight of orpo's odds; 2 unless "
               "given for simpo; for distill, 0 unless given, 0 is the forward divergence from the "
               "teacher, 1 the reverse one, between them Jensen-Shannon's",
       .min = 0,
       .max = 1000},
      {.theme = kObjective,
       .key = "objective.gamma",
       .slot = &o.gamma,
       .help = "by how much the chosen answer shall be above the rejected one (simpo: 1 unless "
               "given)",
       .min = 0,
       .max = 1000},
      {.theme = kObjective,
       .key = "objective.label_smoothing",
       .slot = &o.label_smoothing,
       .help = "the share of pairs taken to be the other way round (dpo, simpo, cpo)",
       .min = 0,
       .max = 0.5},
      {.theme = kObjective,
       .key = "objective.sft_weight",
       .slot = &o.sft_weight,
       .help = "weight of the chosen answer's own loss, the mean over its tokens (cpo: 1 unless "
               "given); for distill that of the answers' loss as sft has it",
       .min = 0,
       .max = 1000},
      {.theme = kObjective,
       .key = "objective.length_normalized",
       .slot = &o.length_normalized,
       .help = "compare the means over each answer's tokens instead of their sums, so that longer "
               "answers are not better ones (dpo)"},
      {.theme = kObjective,
       .key = "objective.share_prompt",
       .slot = &o.share_prompt,
       .help =
           "compute the prompt of both answers once, where that saves a twentieth of the tokens; "
           "not with data.packing false, with cp in the mesh, with longrope, and in models with "
           "blocks without attention"},
      {.theme = kObjective,
       .key = "objective.desirable_weight",
       .slot = &o.desirable_weight,
       .help =
           "weight of good answers' loss (kto); times their number 1 to 4/3 of the bad ones' is "
           "recommended",
       .min = 0,
       .max = 1000},
      {.theme = kObjective,
       .key = "objective.undesirable_weight",
       .slot = &o.undesirable_weight,
       .help = "weight of bad answers' loss (kto)",
       .min = 0,
       .max = 1000},
      {.theme = kObjective,
       .key = "objective.center_rewards_coefficient",
       .slot = &o.center_rewards_coefficient,
       .help = "weight of the square of a pair's rewards together, which keeps them around 0 "
               "(reward); 0.01 is usual",
       .min = 0,
       .max = 1000},
      {.theme = kObjective,
       .key = "objective.reference",
       .slot = &o.reference,
       .help = "another model to compare answers with than the one that is trained, before that "
               "(dpo, ipo, hinge, kto); asked about all rows before training",
       .kind = TextKind::Directory},
      {.theme = kObjective,
       .key = "objective.teacher",
       .slot = &o.teacher,
       .help = "a model to learn from, asked about all rows before training (distill); or the file "
               "that snug evaluate TEACHER --save_top_k 64 writes of it once",
       .kind = TextKind::File},
      {.theme = kObjective,
       .key = "objective.top_k",
       .slot = &o.top_k,
       .help = "so many of the teacher's most likely tokens for each token (distill); each takes 8 "
               "bytes a token in memory",
       .min = 1,
       .max = 1048576},
  };
}

std::vector<Row> memory_rows(Recipe& r) {
  std::vector<Row> rows;
  for (const Technique& technique : techniques()) {
    rows.push_back(technique.option(r));
    rows.back().theme = kMemory;
  }
  const std::vector<Row> others = {
      {.theme = kMemory,
       .key = "weight_offload",
       .slot = &r.weight_offload,
       .help = "disk:FOLDER: keep frozen weights, which adapters or trained parts leave, in a file "
               "in FOLDER rather than in host memory; needs weight_streaming",
       .choices = {"none", "disk:FOLDER"},
       .open = true},
      {.theme = kMemory,
       .key = "offload_prefetch",
       .slot = &r.offload_prefetch,
       .help = "copy offloaded tensors one block ahead of their use, which takes the memory of one "
               "more block; auto: true on cuda",
       .choices = choices_of<Prefetch>(),
       .may_stand_alone = true,
       .normalise = normalise_flag},
      {.theme = kMemory,
       .key = "fit",
       .slot = &r.fit,
       .help = "choose the fastest micro-batch size, memory techniques and device mesh that fit; "
               "options set in the recipe are kept",
       .common = true},
      {.theme = kMemory,
       .key = "fit_disk",
       .slot = &r.fit_disk,
       .help = "let fit move optimizer states to a file in this folder (optimizer_offload "
               "disk:FOLDER) if nothing fits with the states in memory",
       .kind = TextKind::Directory},
      {.theme = kMemory,
       .key = "fit_delay",
       .slot = &r.fit_delay,
       .help = "let fit choose delayed_parameter_update, which changes the training result"},
      {.theme = kMemory,
       .key = "host_memory",
       .slot = &r.host_memory,
       .help = "host memory that plan and fit may use; a run whose plan needs more is refused; "
               "none: the memory of this machine when planning for it, otherwise the value in the "
               "device profile, or else 4 times the GPU's memory, at least 64 GiB, which a plan "
               "may exceed with a warning",
       .min = kLeastMemory,
       .max = kMostMemory,
       .kind = TextKind::Bytes},
      {.theme = kMemory,
       .key = "force",
       .slot = &r.force,
       .help = "train even if the plan does not fit into memory_budget or host_memory"},
      {.theme = kMemory,
       .key = "train.on_oom",
       .slot = &r.train.on_oom,
       .help = "when a micro-batch does not fit: stop and suggest what would fit, or split it and "
               "continue",
       .choices = choices_of<OnOom>()},
  };
  rows.insert(rows.end(), others.begin(), others.end());
  return rows;
}

std::vector<Row> device_rows(Recipe& r) {
  return {
      {.theme = kDevices,
       .key = "devices",
       .slot = &r.devices,
       .help = "devices per machine, with one process per device; auto: all GPUs of the machine",
       .choices = {"NUMBER", "auto"},
       .open = true,
       .common = true},
      {.theme = kDevices,
       .key = "num_nodes",
       .slot = &r.num_nodes,
       .help = "machines",
       .min = 1,
       .max = kMaxRanks},
      {.theme = kDevices,
       .key = "hosts",
       .slot = &r.hosts,
       .help = "machine names with the number of devices on each, as in a:4,b:4; mpirun connects "
               "over ssh",
       .joins_list = true},
      {.theme = kDevices,
       .key = "hostfile",
       .slot = &r.hostfile,
       .help = "Open MPI host file, instead of hosts; needs num_nodes",
       .kind = TextKind::File},
      {.theme = kDevices,
       .key = "collective_timeout",
       .slot = &r.collective_timeout,
       .help = "seconds that one device waits for another before the run ends with an error",
       .min = 1,
       .max = kMostSeconds},
      {.theme = kDevices,
       .key = "strategy",
       .slot = &r.strategy,
       .help = "what to shard over the devices; ddp: nothing; zero1: optimizer states; zero2: "
               "gradients too; fsdp: weights too; hybrid: fsdp within a machine, full copies "
               "across machines; auto: fsdp. Names from Lightning, DeepSpeed and FSDP also work "
               "(deepspeed_stage_2_offload, SHARD_GRAD_OP)",
       .choices = choices_of<Strategy>(),
       .open = true,
       .common = true,
       .normalise = normalise_strategy},
      {.theme = kDevices,
       .key = "mesh",
       .slot = &r.mesh,
       .help = "devices along each axis, instead of those that the strategy implies: dp copies, "
               "fsdp shards, tp tensor, pp pipeline, cp context (each device holds some of the "
               "tokens of each sample), ep experts (each device holds some of the experts of each "
               "layer), as in dp=2,fsdp=4",
       .joins_list = true},
      {.theme = kDevices,
       .key = "sequence_parallel",
       .slot = &r.sequence_parallel,
       .help = "tp: keep on each device only the hidden states of its share of the tokens between "
               "layers; false: of all tokens"},
      {.theme = kDevices,
       .key = "pipeline_schedule",
       .slot = &r.pipeline_schedule,
       .help = "pp: 1f1b runs a micro-batch's backward as soon as its loss is known, so that few "
               "micro-batches are in flight; gpipe runs the forward of all micro-batches first",
       .choices = choices_of<PipelineSchedule>()},
      {.theme = kDevices,
       .key = "pipeline_interleave",
       .slot = &r.pipeline_interleave,
       .help = "pp: virtual pipeline stages per device; more of them shorten the pipeline bubble "
               "but send more data",
       .min = 1,
       .max = 64},
      {.theme = kDevices,
       .key = "forward_prefetch",
       .slot = &r.forward_prefetch,
       .help = "fsdp: gather the next block's weights during the forward of the current one, which "
               "takes the memory of one more block"},
      {.theme = kDevices,
       .key = "backward_prefetch",
       .slot = &r.backward_prefetch,
       .help = "fsdp: the same in backward"},
      {.theme = kDevices,
       .key = "overlap_reduction",
       .slot = &r.overlap_reduction,
       .help = "sum a block's gradients over the devices while the previous block runs its "
               "backward, which takes the memory of one more block"},
  };
}

std::vector<Row> lora_rows(Recipe& r) {
  LoraOptions& l = r.lora;
  std::vector<Row> rows = {
      {.key = "adapter",
       .slot = &l.adapter,
       .help = "train this adapter on instead of a new one: a folder of snug or peft, whose rank, "
               "alpha and layers stay; or give the folder as the model",
       .kind = TextKind::Directory},
      {.key = "lora_r",
       .slot = &l.r,
       .help = "rank of the adapters",
       .min = 1,
       .max = 1 << 16,
       .common = true},
      {.key = "lora_alpha",
       .slot = &l.alpha,
       .help = "scale of the adapters is alpha / rank",
       .min = 1,
       .max = 1e6},
      {.key = "lora_dropout",
       .slot = &l.dropout,
       .help = "dropout rate on the input of the adapters",
       .min = 0,
       .max = 0.99},
      {.key = "lora_query", .slot = &l.query, .help = "adapters on the query projection"},
      {.key = "lora_key", .slot = &l.key, .help = "adapters on the key projection"},
      {.key = "lora_value", .slot = &l.value, .help = "adapters on the value projection"},
      {.key = "lora_projection", .slot = &l.projection, .help = "adapters on the attention output"},
      {.key = "lora_mlp", .slot = &l.mlp, .help = "adapters on the MLP's matrices"},
      {.key = "lora_head", .slot = &l.head, .help = "adapters on the output head"},
      {.key = "lora_target_modules",
       .slot = &l.target_modules,
       .help = "layers that get adapters, instead of lora_query to lora_head: names such as "
               "q_proj,v_proj, all-linear, or a regular expression that matches whole names",
       .kind = TextKind::Verbatim,
       .common = true,
       .joins_list = true},
      {.key = "lora_use_rslora",
       .slot = &l.use_rslora,
       .help = "rsLoRA: the scale is alpha / sqrt(rank)"},
      {.key = "lora_use_dora",
       .slot = &l.use_dora,
       .help = "DoRA: also train the magnitude of each weight row"},
      {.key = "lora_init_weights",
       .slot = &l.init_weights,
       .help =
           "how to initialise adapters: A uniform (default) or gaussian, and B zero; pissa: from "
           "the largest singular values of the weights, which are subtracted from the base",
       .choices = choices_of<AdapterInit>()},
      {.key = "lora_plus_lr_ratio",
       .slot = &l.plus_lr_ratio,
       .help = "LoRA+: ratio of the learning rates of B and A; the paper recommends 16",
       .min = 1,
       .max = 1e6},
      {.key = "quantize",
       .slot = &r.quantize,
       .help =
           "store the frozen weights of linear layers in 4 or 8 bits (QLoRA); those of a folder "
           "that bitsandbytes quantized are as they are stored unless this is given (none: 16 "
           "bits)",
       .choices = choices_of<Quantize>(),
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
  append(objective_rows(r));
  append(eval_rows(r.eval));
  append(memory_rows(r));
  append(device_rows(r));
  append(lora_rows(r));
  append(machine_rows(r.accelerator, r.memory_budget, r.num_threads, r.verbose));
  rows.back().help = "print more about what is done and why; a run begins with its recipe";
  return rows;
}

}  // namespace snug::recipe
