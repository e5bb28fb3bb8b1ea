// The recipe of a fine-tuning run: plain structs whose members carry LitGPT's names, so that a key
// in a YAML file, a dotted option and a member have the same name. rows_recipe.cpp says once how
// each one is read, printed, checked and explained. Nothing here knows tensors or devices. In a
// resolved recipe every null has been replaced by its default; `given_keys` names the keys that
// were set.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>

#include "recipe/tables/choices.h"

namespace snug::recipe {

struct DataOptions {
  std::string class_path = "JSON";  // last word of litgpt.data.X: JSON, Alpaca2k, Alpaca, Dolly, …
  std::string json_path;            // a file or folder of Alpaca-style JSON or JSONL
  std::string path;                 // of image and Hugging Face data sets, and of texts
  std::string sources;              // of a mix, as a list in one line (recipe/sources.h)
  std::optional<bool> mask_prompt;  // empty: of rows of turns
  double val_split_fraction = 0.05;
  std::optional<std::string> val_path;  // a validation file, instead of a split
  std::string prompt_style = "auto";    // auto | alpaca | chat | plain | flan | longform
  std::string chat_template;  // a name, a file, a folder or Jinja itself; empty: the model's
  std::string eos_token;      // empty: the model's
  std::string add_tokens;     // to the vocabulary, with commas between them
  bool include_multiturn_conversations = false;
  bool split_turns = false;
  bool keep_empty_answers = false;
  Word<LongRows> long_rows = LongRows::Auto;
  int64_t overlap = 0;  // tokens that pieces of a document share
  int64_t ignore_index = -100;
  uint64_t seed = 42;
  int64_t num_workers = 4;
  bool packing = true;
  bool padding_in_loss = false;
  std::string download_dir;            // empty = the per-user cache
  std::string split = "train";         // of Hugging Face data sets
  std::string subset;                  // their configuration; empty = the default one
  std::string val_split;               // to validate on; empty = rows held out
  std::string image_column = "auto";   // of pictures: a column's name
  std::string text_column = "auto";    // of captions
  std::string prompt;                  // text before every caption
  std::optional<int64_t> max_samples;  // at most this many, after shuffling

  bool operator==(const DataOptions&) const = default;
};

struct TrainOptions {
  std::optional<int64_t> save_interval = 1000;  // optimizer steps
  std::optional<int64_t> keep_checkpoints;      // at most this many, the newest
  int64_t log_interval = 1;                     // optimizer steps
  int64_t global_batch_size = 16;               // samples per optimizer step over all ranks
  int64_t micro_batch_size = 1;                 // samples per forward on one rank
  int64_t lr_warmup_steps = 100;
  std::optional<double> lr_warmup_fraction;  // of the run; instead of lr_warmup_steps
  Word<LrSchedule> lr_schedule = LrSchedule::Cosine;
  std::optional<int64_t> epochs = 5;
  std::optional<int64_t> max_tokens;
  std::optional<int64_t> max_steps;
  std::optional<int64_t> max_seq_length;
  std::optional<bool> tie_embeddings;
  std::optional<double> max_norm;
  double min_lr = 6e-5;
  double label_smoothing = 0;                  // share spread evenly over all tokens
  double z_loss = 0;                           // weight of the squared log-normalizer
  std::optional<double> neftune_noise_alpha;   // on embeddings; empty: none
  std::optional<double> router_aux_loss_coef;  // instead of the one in the model's config
  Word<LossNormalization> loss_normalization = LossNormalization::Global;
  Word<OnOom> on_oom = OnOom::Stop;
  // Lightning's options for the same quantities.
  std::optional<int64_t> accumulate_grad_batches;  // per step; sets global_batch_size
  std::string limit_train_batches = "1.0";         // per epoch: a share or a number
  bool save_model = true;                          // write the trained model at the end
  std::optional<bool> save_last_state;    // as a checkpoint; empty: where it has room enough
  std::optional<int64_t> early_stopping;  // validations in a row that are not better; empty: none
  bool keep_best = false;                 // the model of the best validation, not of the last step
  Word<BestMetric> best_metric = BestMetric::Loss;

  bool operator==(const TrainOptions&) const = default;
};

struct EvalOptions {
  int64_t interval = 600;  // optimizer steps
  std::optional<int64_t> max_new_tokens = 100;
  int64_t num_samples = 1;  // held-out questions answered before and after training
  int64_t max_iters = 100;  // validation batches at most
  bool initial_validation = false;
  bool final_validation = true;
  std::string evaluate_example = "first";  // first | random | an index of the validation set

  bool operator==(const EvalOptions&) const = default;
};

// The learning rate of AdamW where all weights of a checkpoint train.
inline constexpr double kRateOfAllWeights = 2e-5;

struct OptimizerOptions {
  Word<OptimizerName> name = OptimizerName::AdamW;
  double lr = 1e-3;
  double weight_decay = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double momentum = 0;
  bool nesterov = false;
  Word<StateType> state_dtype = StateType::Auto;
  bool master_weights = false;       // float32 copies of 16-bit weights
  bool stochastic_rounding = false;  // of bfloat16 weights

  bool operator==(const OptimizerOptions&) const = default;
};

// Of preferences, ratings and scores of documents: core/nn/objectives.
struct ObjectiveOptions {
  Word<ObjectiveName> name = ObjectiveName::Sft;
  double beta = 0.1;
  double gamma = 0;
  double label_smoothing = 0;
  double sft_weight = 0;
  bool length_normalized = false;
  bool share_prompt = true;  // engine/steps/objective.h
  double desirable_weight = 1;
  double undesirable_weight = 1;
  double center_rewards_coefficient = 0;
  std::string reference;  // a model to compare with; empty: the one that is trained, before that
  std::string teacher;    // a model, or a file of its most likely tokens (engine/asked/teacher.h)
  int64_t top_k = 64;     // so many of them for each target

  bool operator==(const ObjectiveOptions&) const = default;
};

struct LoraOptions {
  bool enabled = false;  // set by the command, not by a key
  int64_t r = 8;
  int64_t alpha = 16;
  double dropout = 0.05;
  bool query = true;
  bool key = false;
  bool value = true;
  bool projection = false;
  bool mlp = false;
  bool head = false;
  std::string target_modules;  // instead of the six switches above
  bool use_rslora = false;     // scale by alpha / sqrt(r)
  bool use_dora = false;       // also train the magnitude of each weight row
  Word<AdapterInit> init_weights = AdapterInit::Default;
  double plus_lr_ratio = 1;  // ratio of the learning rates of B and A (LoRA+)
  std::string adapter;       // a folder of one that trains on, instead of a new one

  bool operator==(const LoraOptions&) const = default;
};

struct ModelOptions {
  std::string config;               // a config.json: start from random weights of that shape
  std::string train_parts = "all";  // or some of vision, qformer, projection, language
  std::optional<double> dropout;    // instead of the rate in the model's config

  bool operator==(const ModelOptions&) const = default;
};

struct Recipe {
  std::string checkpoint_dir;  // a directory or a GGUF file
  std::string out_dir = "out/finetune/full";
  Word<Precision> precision = Precision::MixedBFloat16;
  Word<FrozenType> frozen_dtype = FrozenType::Auto;
  Word<MatmulPrecision> matmul_precision = MatmulPrecision::High;  // of float32 products on GPUs
  Word<Quantize> quantize = Quantize::None;
  std::string devices = "1";  // a number or "auto"
  Word<Accelerator> accelerator = Accelerator::Auto;
  int64_t num_nodes = 1;
  std::string hosts;                 // "a:4,b:4": the machines; empty = this one
  std::string hostfile;              // the same, as a file of Open MPI's
  int64_t collective_timeout = 600;  // seconds
  std::string resume = "false";      // false | true | auto | a checkpoint directory
  Word<Logger> logger_name = Logger::Csv;
  Word<LogMemory> log_memory = LogMemory::Step;
  bool profile = false;  // of a step, as a Chrome trace
  uint64_t seed = 1337;
  std::string memory_budget;                      // "2GiB"; empty = all there is
  std::string activation_checkpointing = "none";  // none | all | selective | blocks
  bool activation_offload = false;
  bool optimizer_in_backward = false;
  bool optimizer_in_backward_is_auto = false;  // decided by resolve_batches
  std::string optimizer_offload = "none";      // none | cpu | disk:FOLDER
  bool delayed_parameter_update = false;
  bool weight_streaming = false;
  bool expert_streaming = false;
  std::string weight_offload = "none";  // none | disk:FOLDER
  bool cast_cache = false;
  bool cuda_graphs = false;
  Word<Prefetch> offload_prefetch = Prefetch::Auto;
  bool fit = false;         // choose the techniques that are not given
  std::string fit_disk;     // a folder where fit may put optimizer states
  bool fit_delay = false;   // fit may choose delayed_parameter_update
  std::string host_memory;  // "64GiB", for plans; empty = the host's
  bool force = false;       // train even if the plan does not fit
  Word<Strategy> strategy = Strategy::Auto;
  std::string mesh;               // "dp=2,fsdp=4" (recipe/mesh.h); empty: from the strategy
  bool sequence_parallel = true;  // with tp: hidden states are split by tokens
  Word<PipelineSchedule> pipeline_schedule = PipelineSchedule::OneForwardOneBackward;  // with pp
  int64_t pipeline_interleave = 1;  // with pp: virtual stages per rank
  bool forward_prefetch = true;     // shards are gathered one block ahead of their use
  bool backward_prefetch = true;
  bool overlap_reduction = true;
  int64_t num_threads = 0;  // 0 = one per core
  bool full = false;        // `snug finetune --full`
  bool verbose = false;
  std::string access_token;  // never printed
  DataOptions data;
  TrainOptions train;
  EvalOptions eval;
  OptimizerOptions optimizer;
  ObjectiveOptions objective;
  LoraOptions lora;
  ModelOptions model;

  // Options of techniques from outside, by key: extra_option() of techniques/technique.h.
  std::map<std::string, std::variant<bool, int64_t, double, std::string>> extra_options;

  // Dotted keys that a file or an option set: "train.max_steps".
  std::set<std::string> given_keys;

  // Whether a file or an option set this key.
  bool given(const std::string& key) const { return given_keys.contains(key); }
  // Whether the weights themselves are stored in 16 bits, not only multiplied in 16 bits.
  bool has_16_bit_weights() const {
    return precision == Precision::BFloat16 || precision == Precision::Float16;
  }
  // With optimizer_offload: optimizer states are on the host and weights are updated there.
  bool updates_on_host() const { return optimizer_offload != "none"; }
  // With weight_streaming: weights are on the host and come to the device to be used.
  bool streams_weights() const { return weight_streaming; }
  bool streams_experts() const { return expert_streaming; }  // one by one
  bool offloads_activations() const { return activation_offload; }
  // FOLDER of optimizer_offload = disk:FOLDER; std::nullopt: the states are in memory.
  std::optional<std::string> offload_folder() const { return folder_in(optimizer_offload); }
  // The same of weight_offload: of frozen weights.
  std::optional<std::string> weight_folder() const { return folder_in(weight_offload); }
  // The folder of either; if both have one, it is the same.
  std::optional<std::string> disk_folder() const {
    return offload_folder() ? offload_folder() : weight_folder();
  }

 private:
  static std::optional<std::string> folder_in(const std::string& place) {
    static constexpr std::string_view kDisk = "disk:";
    if (!place.starts_with(kDisk)) return std::nullopt;
    return place.substr(kDisk.size());
  }
};

}  // namespace snug::recipe
