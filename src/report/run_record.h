// The record of a run: the contents of run.json, and the source of tables and the report page.
// Tests and benchmarks rely on the file's layout: adding a key is fine, changing one raises
// `schema`. Sizes are in bytes, times in wall seconds, losses are means over the loss tokens of the
// global batch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/expert_load.h"

namespace snug::report {

// What objectives measure beside the loss, by the names that run.json has: of preferences, ratings
// and rewards, of labels, and beside a teacher.
using Figures = std::map<std::string, double>;
inline constexpr std::array kFigureNames = {
    "rewards_chosen", "rewards_rejected", "rewards_accuracy", "rewards_margin", "kl",
    "accuracy",       "sft_loss"};
// The share of pairs, or of texts, that the model gets right; nothing where it is not measured.
std::optional<double> accuracy_in(const Figures& figures);

struct StepRecord {
  int64_t step = 0;
  double loss = 0;
  double seconds = 0;
  int64_t tokens = 0;
  int64_t padded_tokens = 0;
  double lr = 0;
  double grad_norm = 0;
  int64_t raw_tokens = 0;  // of the samples' own text, without the prompt's template
  int64_t epoch = 0;       // in which the step began, from 1; 0: not recorded
  // How busy the device was, 0..1 (train/records/busy_meter.h); NaN: not known.
  double utilization = std::numeric_limits<double>::quiet_NaN();
  // The load of the busiest expert of any block, over its block's mean; 0: no mixture of experts.
  double expert_load = 0;
  Figures figures = {};
  // Steps that this stands for, `step` the last of them (report/thinning.h): seconds and tokens are
  // their sums; loss, gradient norm and utilization means over those that are numbers, expert_load
  // the most.
  int64_t count = 1;
};

// Over the steps, without the first ones, which warm up. NaN: not known.
struct StepStatistics {
  double mean_seconds = std::numeric_limits<double>::quiet_NaN();
  double median_seconds = mean_seconds;
  double mean_utilization = mean_seconds;
  double utilization_deviation = mean_seconds;  // standard, of single steps
};

// The steps that began in one epoch.
struct EpochRecord {
  int64_t epoch = 0;
  int64_t steps = 0;
  double loss = 0;  // mean over the steps, without those whose loss is no number
  int64_t tokens = 0;
  double seconds = 0;   // of the steps
  int64_t skipped = 0;  // steps whose loss is no number
  int64_t count = 1;    // epochs that this stands for, `epoch` the last of them
};

struct PhaseRecord {
  int64_t step = 0;
  std::string phase;  // before_fwd, after_fwd, after_bwd, after_opt_step
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t optimizer_device = 0;
  int64_t optimizer_host = 0;  // in host memory, so not part of `allocated`
  int64_t activations = 0;
  int64_t workspace = 0;
  int64_t communication = 0;
  int64_t data = 0;
  int64_t allocated = 0;
  int64_t peak = 0;
  int64_t reserved = 0;
  int64_t micro_batch = 0;  // of the step, from 1; 0: of the step's first, or of all of them
};

struct ValidationRecord {
  int64_t step = 0;
  double loss = 0;
  int64_t tokens = 0;
  Figures figures = {};
  // The loss on what each source of a mix holds out, by its name.
  Figures sources = {};
  int64_t count = 1;  // validations that this stands for, the last of them at `step`
};

// One source of a mix.
struct SourceRecord {
  std::string name;
  int64_t samples = 0, held_out = 0;
  int64_t per_epoch = 0;  // training samples
  int64_t read = 0;       // of them so far, each as often as it was read
  std::string style;      // how its rows become text, and what is learnt

  bool operator==(const SourceRecord&) const = default;
};

// The best validation so far, where the recipe asks for it; step 0: none yet.
struct BestRecord {
  int64_t step = 0;
  std::string metric;  // loss, accuracy
  double value = 0;
  int64_t later = 0;  // validations after it, none of them better

  bool operator==(const BestRecord&) const = default;
};

struct ModelRecord {
  std::string id;
  int64_t parameters = 0;
  int64_t trainable = 0;
};

struct DeviceRecord {
  std::string name;
  int64_t budget_bytes = 0;
};

struct SpeedRecord {
  double tokens_per_second = 0;
  double model_flops_per_second = 0;
  double share_of_peak = 0;  // 0..1
  StepStatistics steps;
};

struct MemoryPeaks {
  int64_t peak_allocated = 0;
  int64_t peak_reserved = 0;
  int64_t peak_host = 0;                       // measured only
  int64_t on_disk = 0;                         // optimizer states and weights in files
  std::map<std::string, int64_t> by_category;  // live at the moment of the peak
  int64_t num_alloc_retries = 0;               // measured only: of the CUDA allocator
};

struct MemoryRecord {
  std::optional<MemoryPeaks> predicted;  // null in the file when the run was not planned
  MemoryPeaks measured;
  std::vector<PhaseRecord> phases;
};

// A change to the recipe with which the plan fits.
struct SuggestionRecord {
  std::string options;  // to be added to the command
  std::string cost;     // in plain words
  int64_t peak_allocated = 0;
  std::string command;  // complete
};

// The memory of one process of several, at the end of the run.
struct RankMemoryRecord {
  int rank = 0;
  std::string device;
  int64_t predicted_allocated = 0;
  int64_t peak_allocated = 0;
  int64_t peak_host = 0;
  int64_t num_alloc_retries = 0;
};

// Why a run ran out of memory: the request that failed, and what was live then.
struct OutOfMemoryRecord {
  std::string phase;     // setup, forward, backward, step, evaluate; "plan": nothing was started
  std::string unit;      // empty in a plan
  std::string category;  // of the request
  int64_t requested = 0;
  int64_t missing = 0;
  int64_t allocated = 0;  // live; in a plan: at its peak
  std::map<std::string, int64_t> by_category;
  std::map<std::string, int64_t> by_unit;
  std::vector<SuggestionRecord> suggestions;
};

// A held-out question or picture, and the model's answers before and after training.
struct SampleRecord {
  std::string question, expected;
  std::string before;  // empty if the untrained model could not be asked
  std::string after;
};

// The run was resumed from a checkpoint.
struct ResumptionRecord {
  int64_t step = 0;          // after which the checkpoint was written
  double seconds_total = 0;  // of the run until then
};

// Wall seconds since the start of this process. Stages follow each other.
struct StartupRecord {
  std::vector<std::pair<std::string, double>> stages;  // seconds of each
  double first_step_begun = 0;
  double first_step_ended = 0;
};

struct RunRecord {
  int schema = 1;
  // ok, oom, error, interrupted; unfinished: written along with a checkpoint
  std::string outcome = "ok";
  std::string reason;
  std::vector<std::string> notes;  // e.g. why it took fewer steps than the recipe asks for
  std::string command;
  nlohmann::json recipe = nlohmann::json::object();
  ModelRecord model;
  DeviceRecord device;
  int world_size = 1;
  std::string mesh;                     // "dp=2,fsdp=2"
  std::vector<RankMemoryRecord> ranks;  // empty for a single process
  std::vector<StepRecord> steps;
  std::vector<EpochRecord> epochs;
  int64_t tokens_per_epoch = 0;       // 0: not known
  std::vector<ExpertRecord> experts;  // by block; empty: no mixture
  std::vector<SourceRecord> sources;  // empty: the data are of one
  SpeedRecord speed;
  MemoryRecord memory;
  std::vector<ValidationRecord> validation;
  BestRecord best;
  std::optional<OutOfMemoryRecord> out_of_memory;
  std::vector<ResumptionRecord> resumptions;
  std::vector<SampleRecord> samples;
  StartupRecord startup;
  // Wall seconds from before the first validation or step to after the last one, checkpoints
  // included: what LitGPT calls the training time. Both include those before each resumption.
  double fit_seconds = 0;
  double seconds_total = 0;
};

// The text of run.json, with one line per step, phase and validation, so that it reads and diffs
// well.
// Infinities and NaN become null; bytes that are not UTF-8 become U+FFFD.
std::string run_json(const RunRecord& record);

// Throws UserError naming the file. null becomes NaN.
RunRecord read_run_json(const std::filesystem::path& path);

// Atomically: a run that dies meanwhile leaves the old file or the new one.
void write_run_json(const RunRecord& record, const std::filesystem::path& path);

}  // namespace snug::report
