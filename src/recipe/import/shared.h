// Translations that several programs share, since all of them build on transformers, peft and
// torch: lengths, schedules, optimizers, types of weights, adapters, files, sharding.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "recipe/import/draft.h"

namespace snug::recipe {

// Reasons that several tables give.
inline constexpr std::string_view kNoOnlineLogger =
    "snug has no online loggers; it writes metrics.csv, or event files with logger_name "
    "tensorboard";
inline constexpr std::string_view kNoUpload = "snug uploads nothing";
inline constexpr std::string_view kOwnKernels =
    "snug has one attention and one fused loss, which keep neither scores nor logits";
inline constexpr std::string_view kOwnModel = "the model is read from its config.json and weights";
inline constexpr std::string_view kOwnTokenizer =
    "the tokenizer and its special tokens are those of the model's folder";
inline constexpr std::string_view kOwnLoader = "snug reads and packs rows its own way";
inline constexpr std::string_view kInSteps =
    "snug counts in optimizer steps: train.save_interval, eval.interval";
inline constexpr std::string_view kOwnProcesses =
    "snug starts and joins its processes itself: devices, strategy, collective_timeout";
inline constexpr std::string_view kOwnLog = "snug has its own log";
inline constexpr std::string_view kOwnMetric = "follows from the metric";
inline constexpr std::string_view kOff = "off, as it is here";
inline constexpr std::string_view kNoGeneration = "only for generation";
inline constexpr std::string_view kNoSuchObjective =
    "snug does not have this objective yet; choose one of its own with --objective";
inline constexpr std::string_view kOwnDistillation =
    "a teacher is asked once, before training: give --objective distill --objective.teacher MODEL, "
    "without this recipe's other keys of distillation";
inline constexpr std::string_view kNoPreferences = "belongs to preference training, which is off";
inline constexpr std::string_view kOwnReference =
    "the reference is the model before training, or that of --objective.reference; leave it out";
inline constexpr std::string_view kOwnReferencePass =
    "snug computes the reference's log-probabilities once, before training";
inline constexpr std::string_view kOfMicroBatch =
    "the chosen answer's loss is the mean over its tokens, and pairs count alike; TRL takes the "
    "mean over all chosen tokens of a micro-batch";
inline constexpr std::string_view kOtherReferencePoint =
    "the reference point (kl) is one of the whole global batch, by the answers of rows before in "
    "the "
    "data; here it is one of each micro-batch, by the other answers in it";
inline constexpr std::string_view kNoSuchTechnique = "snug does not have this; leave it out";
inline constexpr std::string_view kPlainAdapters =
    "adapters here are new, of one rank, on linear layers";
inline constexpr std::string_view kOtherRows =
    "snug reads rows by their usual columns; rename them";
inline constexpr std::string_view kOneSplit =
    "a data file has one split; write these rows to a file";

// --- ways of single keys (KeyRow::by) ---

// A folder or file as it stands; ORG/NAME is where snug download puts it.
void take_model(Draft& draft, const Found& found);
// eval_loss, or the accuracy of objectives that have one.
void take_best_metric(Draft& draft, const Found& found);
// "3.0" -> "3" for the row's option; a share of the run or an epoch has no counterpart.
void take_log_steps(Draft& draft, const Found& found);
void take_save_steps(Draft& draft, const Found& found);
void take_eval_steps(Draft& draft, const Found& found);
// A share of the rows; a number of rows has no counterpart.
void take_held_out(Draft& draft, const Found& found);
// The split of the rows to train on: all of a file, "train", or refused.
void take_split(Draft& draft, const Found& found);
// Seconds; some recipes say "never" by a number beyond ours.
void take_timeout(Draft& draft, const Found& found);
// true, false, or a folder.
void take_resume(Draft& draft, const Found& found);

// --- what several keys say together; each takes the keys' names where programs differ ---

void take_length(Draft& draft, std::string_view epochs);
// Lists of new tokens, or texts of them with commas, each null if there is none.
void set_tokens(Draft& draft, std::string_view key, std::initializer_list<const YamlNode*> lists);
inline constexpr std::string_view kSpecialHere =
    "new tokens are special here, which are left out of texts to be read";
// A switch of Liger's kernels.
void take_liger(Draft& draft, const Found& found);
void take_warmup(Draft& draft);
void take_schedule(Draft& draft, std::string_view key);
void take_optimizer(Draft& draft, std::string_view key);
// Returns our name.
std::string take_optimizer_name(Draft& draft, const std::string& name, std::string_view key);
void take_saving(Draft& draft);
// The sizes of the mesh's axes: pairs of their key and our axis.
void take_mesh(Draft& draft,
               const std::vector<std::pair<std::string_view, std::string_view>>& axes);

// The data and the loss of TRL's SFTConfig; `mask` is a further key that leaves prompts out.
void take_sft_arguments(Draft& draft, std::string_view mask = {});

// How their program holds weights while it trains with 16-bit products.
struct Weights {
  bool in_16_bits = false;
  bool with_float32_copies = false;  // of the trained ones
};
void take_precision(Draft& draft, Weights weights);

// bits: 0, 4 or 8.
void take_quantization(Draft& draft, int bits, std::string_view type, bool is_double,
                       std::string_view theirs);
// The matrices that get adapters: names, or "all" and "all-linear".
void take_targets(Draft& draft, std::string_view theirs);

// --- preferences: objectives over pairs of answers ---

// Their keys of an objective's arguments; empty: none.
struct PreferenceKeys {
  std::string_view beta;
  std::string_view gamma = {};
  std::string_view label_smoothing = {};
  std::string_view desirable_weight = {};
  std::string_view undesirable_weight = {};
};
// Sets our objective, which the key `theirs` says, and its arguments.
void take_objective(Draft& draft, std::string_view objective, std::string_view theirs,
                    const PreferenceKeys& keys);
// The losses of TRL's DPOTrainer, a word or a list with weights: one of pairs, beside which "sft"
// may stand. Returns our objective; empty: refused.
std::string take_dpo_losses(Draft& draft, std::string_view losses, std::string_view weights);
// The chosen answer's own loss in TRL's trainers.
void take_sft_weight(Draft& draft, std::string_view weight, std::string_view theirs);
void refuse_objective(Draft& draft, std::string_view theirs, std::string_view name);
// What trainers of preferences do by themselves: no dropout, in adapters neither. After "full".
void take_no_dropout(Draft& draft, std::string_view theirs);
// LD-DPO's weight of the tokens that only the longer answer has; 1 is the usual loss.
void take_ld_alpha(Draft& draft, const Found& found);
// Whether snug's rows of preferences know a column of that name as their "prompt", "chosen" or
// "rejected".
bool is_pair_column(std::string_view role, std::string_view name);
// Remarks on those of the keys (with spaces between them) that are given.
void idle_all(Draft& draft, std::string_view keys, std::string_view why);

// Recomputation, by their key or FSDP's.
void take_checkpointing(Draft& draft, std::string_view key);

// deepspeed: a file or a mapping; fsdp with fsdp_config. Returns whether weights are sharded or
// updated by one of them.
bool take_sharding(Draft& draft);

// One data set, a file or a name on the hub; `theirs` is the key with its name.
void take_data(Draft& draft, const std::string& name, std::string_view theirs);

// What is said of one data set of several: keys of `data` with their values.
using DataKeys = std::vector<std::pair<std::string, std::string>>;
// Which rows they are; empty: refused.
DataKeys data_keys(Draft& draft, const std::string& name, std::string_view theirs);
// Of a data set of the hub: another split than train, a subset; both may be empty.
void add_split(DataKeys& keys, const std::string& split, const std::string& subset);
// Sets data to these: one, or the sources of a mix, of which none may be refused.
void set_data(Draft& draft, const std::vector<DataKeys>& sets, std::string_view theirs);

// `path` as it stands if it exists, else beside the recipe if it exists there, else empty.
std::string existing_file(const Draft& draft, const std::string& path);

// Keys of FSDP in recipes of transformers and axolotl.
std::span<const KeyRow> fsdp_rows();
// Keys that all of TRL's trainers have, with the arguments of its scripts.
std::span<const KeyRow> trl_rows();
// Keys of TRL's SFTConfig alone.
std::span<const KeyRow> sft_rows();
// Keys of transformers' TrainingArguments.
std::span<const KeyRow> transformers_rows();

}  // namespace snug::recipe
