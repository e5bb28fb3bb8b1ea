// What each command other than finetune takes. Same rule as recipe.h: plain structs, one table row
// a member, in rows_commands.cpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace snug::recipe {

enum class Command {
  Demo,
  FinetuneFull,
  FinetuneLora,  // also plain `finetune`
  Plan,
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
  Download,
  Completion,
  Version,
  Help,
};

// demo: a fine-tuning run with model, data and recipe of its own.
struct DemoOptions {
  std::string checkpoint_dir;  // empty = the demo's model, fetched once
  bool lora = false;
  std::string questions = "auto";  // auto | debian | numbers
  std::string data_dir = "out/demo-data";
  bool data_only = false;
  std::vector<std::string> finetune_words;  // what is for snug finetune, as it was typed
};

// plan, beside its recipe.
struct PlanOptions {
  std::string device = "cpu";  // a profile's name or a YAML file; cpu: this machine
  std::string like;            // litgpt | lightning: another program to compare with; empty: none
  bool scaling = false;        // a table of more devices
  bool json = false;
  std::string html;  // a file to write
};

// How the next token is chosen, for generate, caption and chat.
struct BeamOptions {
  std::optional<int64_t> num_beams;  // empty = the command's own
  double length_penalty = 1.0;
  double repetition_penalty = 1.0;
  int64_t no_repeat_ngram_size = 0;
  int64_t min_new_tokens = 0;
};

// generate and chat. An optional that is empty means that this filter is off.
struct GenerateOptions {
  std::string checkpoint_dir;
  std::vector<std::string> adapters;  // folders of adapters that take turns beside the model
  std::string quantize;               // weights in 4 or 8 bits; empty = as they are
  std::optional<std::string> prompt;  // empty = standard input
  std::string sys_prompt;             // prompt_style chat only; empty = the template's own
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
  std::vector<std::string> images;     // files, folders, patterns; empty: `data` says what
  DataOptions data{.class_path = ""};  // empty class_path: none
  std::optional<int64_t> limit;        // the first so many; empty = all
  bool score = false;                  // compare captions with those that the data has
  std::string adapter;                 // a folder; empty = none
  std::string quantize;                // weights in 4 or 8 bits; empty = as they are
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
  bool force = false;           // write over what is there
  Word<Accelerator> accelerator = Accelerator::Auto;
  std::string memory_budget;
  int64_t num_threads = 0;
  bool verbose = false;
};

struct EvaluateOptions {
  std::string checkpoint_dir;
  std::string adapter;   // a folder; empty = none
  std::string quantize;  // weights in 4 or 8 bits; empty = as they are
  DataOptions data;
  bool mask_prompt_given = false;  // else prompts count as they did in training
  std::string split = "all";  // all | train | val: which part of the file, split as in training
  std::string precision = "bf16-true";
  int64_t micro_batch_size = 4;
  std::optional<int64_t> max_seq_length;
  std::optional<int64_t> max_iters;
  bool captions = true;         // of pictures: also write captions and score them
  int64_t num_beams = 5;        // of those
  int64_t max_new_tokens = 30;  // of those
  std::string captions_file;    // where they are written; empty = nowhere
  Word<Accelerator> accelerator = Accelerator::Auto;
  std::string memory_budget;
  int64_t num_threads = 0;
  bool json = false;
  bool verbose = false;
};

// data: what training makes of rows. Only a tokenizer is needed of the model.
struct ShowDataOptions {
  std::string action;  // show
  std::string file;    // instead of data.json_path or data.path
  std::string checkpoint_dir;
  int64_t num_samples = 3;     // that are shown
  std::optional<int64_t> row;  // this one instead, counted from 1
  std::optional<int64_t> max_seq_length;
  DataOptions data;
  std::string access_token;          // empty = HF_TOKEN of the environment
  std::set<std::string> given_keys;  // as in a recipe
  bool json = false;
  bool verbose = false;
};

struct ConvertOptions {
  std::string source;
  std::string destination;
  std::string to = "auto";  // auto | hf | litgpt | gguf
  std::string dtype;        // empty = as in the source
  bool verbose = false;
};

// merge, under the names of LitGPT's merge_lora.
struct MergeOptions {
  std::string checkpoint_dir;             // the adapter's
  std::string pretrained_checkpoint_dir;  // the base; empty = the one that the adapter names
  std::string out_dir;                    // empty = checkpoint_dir with "-merged" after it
  std::string dtype;                      // empty = as in the base
  std::string quantize;                   // what the run kept its weights in; empty = as they are
  std::string precision = "bf16-true";    // of that run
  bool verbose = false;
};

// bench. Where it runs is said as in a recipe.
struct BenchOptions {
  std::string what = "collectives";
  std::string devices = "auto";  // a number or "auto"
  int64_t num_nodes = 1;
  std::string hosts;
  Word<Accelerator> accelerator = Accelerator::Auto;
  std::string dtype = "float32";
  std::string min_bytes = "1KiB";
  std::string max_bytes = "64MiB";
  int64_t factor = 4;  // each size this many times the one before
  std::string out_dir = "out/bench";
  bool json = false;
};

// lab: suites of runs. Which options an action takes, check.h says.
struct LabOptions {
  std::string action;  // run | list | report | compare
  std::vector<std::string>
      targets;                   // suites (names or files); of report and compare: runs' folders
  bool plan = false;             // rows are planned, at full size, on the suite's device
  bool scaled = false;           // rows run on this machine with small models and a small budget
  bool dry_run = false;          // say what would run, with its plan; nothing is written
  std::string rows;              // ids and patterns, comma-separated; empty = all
  std::string device;            // a profile; empty = the suite's (plan), this machine (run)
  std::string memory_budget;     // empty = the suite's (scaled), the device's
  std::vector<std::string> set;  // KEY=VALUE for every row, after its own
  std::string out_dir;           // empty = out/lab/SUITE, with -plan or -scaled behind it
  double row_timeout = 0;        // seconds; 0 = the suite's
  bool restart = false;          // do done rows again
  bool json = false;
  bool verbose = false;
};

struct MonitorOptions {
  std::string run;      // a run's folder, a lab run's folder; empty = the newest under out/
  double interval = 1;  // seconds between looks
  bool once = false;    // say it once and end
  bool json = false;    // one object a look
};

struct DoctorOptions {
  std::string out_dir = "out";  // whose disk is looked at
  bool json = false;
};

struct DownloadOptions {
  std::string repo_id;
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
  std::string options;  // all: every option of the command; empty: those that most people need
};

}  // namespace snug::recipe
