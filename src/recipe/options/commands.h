// The options of each command other than finetune. As in recipe.h: plain structs, with one row per
// member in rows_*.cpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "recipe/import/deepspeed.h"
#include "recipe/recipe.h"

namespace snug::recipe {

enum class Command {
  Demo,
  FinetuneFull,
  FinetuneLora,  // also plain `finetune`
  Plan,
  Models,
  Import,
  Generate,
  Caption,
  Chat,
  Data,
  Evaluate,
  Convert,
  Merge,
  Bench,
  Lab,
  Monitor,
  Doctor,
  Verify,
  Download,
  Completion,
  Version,
  Help,
};

// demo: a fine-tuning run with model, data and recipe of its own.
struct DemoOptions {
  std::string checkpoint_dir;              // empty = `model`, fetched once
  std::string model = "smollm2";           // smollm2 | gemma3
  bool lora = false, lora_is_auto = true;  // auto: as the model's demo does
  std::string questions = "auto";          // auto | debian | numbers
  std::string data_dir = "out/demo-data";
  bool data_only = false;
  bool fetch_only = false;
  std::vector<std::string> finetune_words;  // options for snug finetune, as typed
};

// plan, beside its recipe.
struct PlanOptions {
  std::string device = "cpu";     // a profile's name or a YAML file; cpu: this machine
  std::string like;               // another program to compare with; empty: none
  bool names_folder = false;      // checkpoint_dir stands on the command line, not in a recipe
  bool recipe_has_liger = false;  // a recipe of transformers' kin that has Liger's kernels on
  std::optional<DeepSpeed> recipe_deepspeed;  // … that DeepSpeed trains
  bool scaling = false;                       // also plan for more devices
  bool largest = false;                       // search the largest model that fits
  int64_t machine_devices = 0;  // of a machine that a sweep's runs stand on side by side; 0: none
  std::string sweep;            // options that run through values; empty: none
  bool operations = false;      // also count the kernels of a step
  std::string price_per_hour;   // "2.49 USD", of one device; empty: not known
  bool json = false;
  std::string html;  // HTML file to write
};

// models: the table of models by name.
struct ModelsOptions {
  std::string name;    // a part of their names; empty: all
  std::string device;  // a profile's name or a YAML file; empty: none
  bool json = false;
};

// import: a recipe of another program as a recipe of snug.
struct ImportOptions {
  std::string recipe;  // the file
  std::string out;     // empty = standard output
};

// How the next token is chosen, for generate, caption and chat.
struct BeamOptions {
  std::optional<int64_t> num_beams;  // empty = the command's default
  double length_penalty = 1.0;
  double repetition_penalty = 1.0;
  int64_t no_repeat_ngram_size = 0;
  int64_t min_new_tokens = 0;
};

// generate and chat. An empty optional means that this filter is off.
struct GenerateOptions {
  std::string checkpoint_dir;
  std::vector<std::string> adapters;  // adapter folders; each answers in turn
  std::string quantize = "auto";      // weights in 4 or 8 bits; auto = as they are stored
  std::vector<std::string> images;    // files of pictures
  std::optional<std::string> prompt;  // empty = standard input
  std::string prompts;                // file of many; empty = one prompt
  std::vector<std::string> stop;      // texts that end an answer
  // Empty = the one that all rows of the training began with, else the template's own.
  std::optional<std::string> sys_prompt;
  std::string prompt_style = "auto";  // as the model was trained, else chat, else plain
  int64_t max_new_tokens = 50;
  int64_t num_samples = 1;
  double temperature = 0.8;  // 0 = always the likeliest token
  std::optional<int64_t> top_k = 50;
  double top_p = 1.0;
  BeamOptions beams;
  uint64_t seed = 1234;
  std::string precision = "bf16-true";
  bool stream = true;
  bool json = false;
  Word<Accelerator> accelerator = Accelerator::Auto;
  std::string memory_budget;
  int64_t num_threads = 0;
  bool verbose = false;
};

struct CaptionOptions {
  std::string checkpoint_dir;
  std::vector<std::string> images;     // files, folders, patterns; empty: those of `data`
  DataOptions data{.class_path = ""};  // empty class_path: none
  std::optional<int64_t> limit;        // at most this many; empty = all
  bool score = false;                  // compare with the reference captions
  std::string adapter;                 // a folder; empty = none
  std::string quantize = "auto";       // weights in 4 or 8 bits; auto = as they are stored
  std::string prompt;
  int64_t max_new_tokens = 30;
  double temperature = 0;
  std::optional<int64_t> top_k = 50;
  double top_p = 1.0;
  BeamOptions beams;
  uint64_t seed = 1234;
  int64_t batch_size = 8;
  std::string precision = "bf16-true";
  std::string format = "text";  // text | jsonl
  std::string out;              // a file; empty = standard output
  bool beside = false;          // a text file beside each picture instead
  bool force = false;           // overwrite existing files
  Word<Accelerator> accelerator = Accelerator::Auto;
  std::string memory_budget;
  int64_t num_threads = 0;
  bool verbose = false;
};

struct EvaluateOptions {
  std::string checkpoint_dir;
  std::string adapter;            // a folder; empty = none
  std::string quantize = "auto";  // weights in 4 or 8 bits; auto = as they are stored
  DataOptions data;
  bool mask_prompt_given = false;  // else as in training
  std::string split = "all";       // all | train | val
  std::string precision = "bf16-true";
  int64_t micro_batch_size = 4;
  std::optional<int64_t> max_seq_length;
  std::optional<int64_t> max_iters;
  bool captions = true;         // for pictures: also write captions and score them
  int64_t num_beams = 5;        // for captions
  int64_t max_new_tokens = 30;  // in a caption
  std::string captions_file;    // JSON lines; empty = none
  std::string scores_file;      // the same, of a model that scores documents, or of pairs
  int64_t save_top_k = 0;       // of each target, for one that learns from this model; 0: none
  std::string teacher_file = "teacher.safetensors";  // where they go
  ObjectiveOptions objective;                        // by which pairs are evaluated
  Word<Accelerator> accelerator = Accelerator::Auto;
  std::string memory_budget;
  int64_t num_threads = 0;
  bool json = false;
  bool verbose = false;
};

// data: rows as training sees them. Only the tokenizer of the model is read.
struct ShowDataOptions {
  std::string action;  // show
  std::string file;    // instead of data.json_path or data.path
  std::string checkpoint_dir;
  int64_t num_samples = 3;     // to show
  std::optional<int64_t> row;  // show this row instead, counted from 1
  std::optional<int64_t> max_seq_length;
  DataOptions data;
  Word<ObjectiveName> objective = ObjectiveName::Sft;
  std::string access_token;          // empty = HF_TOKEN of the environment
  std::set<std::string> given_keys;  // as in a recipe
  bool json = false;
  bool verbose = false;
};

struct ConvertOptions {
  std::string source;
  std::string destination;
  std::string to = "auto";                // auto | hf | litgpt | gguf | ollama
  std::string dtype;                      // empty = as in the source
  std::string gguf_type;                  // of a GGUF file, instead of dtype; empty = not quantized
  bool text_only = false;                 // the language model of one with other parts too
  std::string pretrained_checkpoint_dir;  // an adapter's base; empty = the one that it names
  std::string imatrix;                    // a file with an importance matrix; empty = none
  std::string imatrix_data;               // rows to make one from; empty = none
  std::string imatrix_out;                // a file to keep that one in; empty = none
  std::string precision = "bf16-true";    // while it is made
  bool verbose = false;
};

// merge, under the names of LitGPT's merge_lora.
struct MergeOptions {
  std::string checkpoint_dir;             // the adapter's
  std::string pretrained_checkpoint_dir;  // the base; empty = the one that the adapter names
  std::string out_dir;                    // empty = checkpoint_dir with "-merged" after it
  std::string dtype;                      // empty = as in the base
  std::string quantize;                   // that of the QLoRA run; empty = none
  std::string precision = "bf16-true";    // of the QLoRA run
  bool verbose = false;
};

// bench. Devices as in a recipe.
struct BenchOptions {
  std::string what = "collectives";
  std::string devices = "auto";  // a number or "auto"
  int64_t num_nodes = 1;
  std::string hosts;
  Word<Accelerator> accelerator = Accelerator::Auto;
  std::string dtype = "float32";
  std::string min_bytes = "1KiB";
  std::string max_bytes = "64MiB";
  int64_t factor = 4;  // ratio of each size to the one before
  std::string out_dir = "out/bench";
  bool json = false;
};

// lab: suites of runs.
struct LabOptions {
  std::string action;  // run | list | report | compare
  std::vector<std::string>
      targets;                   // suites (names or files); for report and compare: folders of runs
  bool plan = false;             // plan the rows at full size for the suite's device
  bool scaled = false;           // run small models on this machine under a small budget
  bool dry_run = false;          // print the planned rows; write nothing
  std::string rows;              // ids and patterns, comma-separated; empty = all
  std::string device;            // a profile; empty = the suite's (plan), this machine (run)
  std::string memory_budget;     // empty = the suite's (scaled), the device's
  std::vector<std::string> set;  // KEY=VALUE for every row; overrides the row's own
  bool as_published = false;     // follow the original in what changes numbers
  bool worksheet = false;        // with report: a sheet to write on, too
  std::string out_dir;           // empty = out/lab/SUITE, with -plan or -scaled appended
  double row_timeout = 0;        // seconds; 0 = the suite's
  bool restart = false;          // run finished rows again
  bool json = false;
  bool verbose = false;
};

struct MonitorOptions {
  std::string run;      // a run's folder, a lab run's folder; empty = the newest under out/
  double interval = 1;  // seconds between updates
  bool once = false;    // print the state once
  bool json = false;    // one object per update
};

struct DoctorOptions {
  std::string out_dir = "out";  // its disk is checked
  bool json = false;
};

struct VerifyOptions {
  std::string folder;
  bool json = false;
};

struct DownloadOptions {
  std::string repo_id;  // of a model
  std::string data;     // or of a data set
  std::string data_dir = "data";
  std::string access_token;  // empty = HF_TOKEN of the environment
  std::string checkpoint_dir = "checkpoints";
  std::string revision = "main";
  std::string endpoint;  // empty = HF_ENDPOINT of the environment, else https://huggingface.co
  bool verbose = false;
};

struct CompletionOptions {
  std::string shell;  // bash | zsh | fish
};

struct HelpOptions {
  std::string command;
  std::string options;  // all: every option; empty: the common ones
};

}  // namespace snug::recipe
