// Rows that several commands have: data, the machine. And LitGPT's keys without an effect.
// SPDX-License-Identifier: Apache-2.0
#include "config/names.h"
#include "config/rows.h"

namespace snug::config {

namespace {
constexpr std::string_view kData = "Data";
constexpr std::string_view kMachine = "This machine";

}  // namespace

std::vector<Row> data_rows(DataOptions& d) {
  return {
      {.theme = kData,
       .key = "data.class_path",
       .slot = &d.class_path,
       .help = "a file of rows, or JSON with data.json_path; HFDataset for a folder of Hugging "
               "Face's, ImageFolder "
               "for pictures with a metadata file, Synthetic for samples of a random rule that "
               "need no files (for measuring), or a named data set, which is fetched once",
       .choices = data_names(),
       .shown = "data",
       .aliases = {"data", "data.name"},
       .common = true,
       .normalise = normalise_data},
      {.theme = kData,
       .key = "data.json_path",
       .slot = &d.json_path,
       .help = "JSON, JSONL, CSV, TSV or Parquet with instruction, input and output, messages, "
               "question and answer, prompt and completion, or text; or a folder with train.json "
               "and val.json",
       .kind = TextKind::File,
       .common = true},
      {.theme = kData,
       .key = "data.path",
       .slot = &d.path,
       .help =
           "of HFDataset: a folder of save_to_disk, or of Parquet files; of ImageFolder: a folder "
           "with metadata.jsonl or metadata.csv",
       .kind = TextKind::Directory},
      {.theme = kData,
       .key = "data.split",
       .slot = &d.split,
       .help = "which split of an HFDataset or ImageFolder is trained on"},
      {.theme = kData,
       .key = "data.image_column",
       .slot = &d.image_column,
       .help = "column of the pictures; auto: the one that holds some"},
      {.theme = kData,
       .key = "data.text_column",
       .slot = &d.text_column,
       .help = "column of the captions; auto: text, caption, captions, description and the like"},
      {.theme = kData,
       .key = "data.prompt",
       .slot = &d.prompt,
       .help = "what stands before every caption; it is never learnt"},
      {.theme = kData,
       .key = "data.val_split_fraction",
       .slot = &d.val_split_fraction,
       .help =
           "share of the rows held out for validation (Alpaca 0.03865, AlpacaGPT4 0.03847, Dolly "
           "and LIMA 0.1)",
       .min = 0,
       .max = 1},
      {.theme = kData,
       .key = "data.val_path",
       .slot = &d.val_path,
       .help = "a validation file of its own, instead of a share",
       .kind = TextKind::File},
      {.theme = kData,
       .key = "data.prompt_style",
       .slot = &d.prompt_style,
       .help =
           "how a row becomes text; auto: rows of turns in the model's chat template, prompts with "
           "completions as they are, others as alpaca (named data sets have their own defaults); "
           "chat: the model's chat template for all",
       .choices = {"auto", "alpaca", "chat", "plain", "flan", "longform"},
       .normalise =
           [](std::string_view name) { return std::string(name == "default" ? "plain" : name); }},
      {.theme = kData,
       .key = "data.mask_prompt",
       .slot = &d.mask_prompt,
       .help = "no loss on the prompt's tokens",
       .common = true},
      {.theme = kData,
       .key = "data.ignore_index",
       .slot = &d.ignore_index,
       .help = "label of tokens without loss",
       .min = -2147483648.0,
       .max = -1},
      {.theme = kData,
       .key = "data.max_samples",
       .slot = &d.max_samples,
       .help = "train on the first N samples after shuffling; none: on all (Synthetic: 256 are "
               "made, or a global batch if that is more)",
       .min = 1,
       .aliases = {"num_train_samples"}},
      {.theme = kData,
       .key = "data.packing",
       .slot = &d.packing,
       .help = "put samples end to end with attention inside each; false: pad to the longest"},
      {.theme = kData,
       .key = "data.padding_in_loss",
       .slot = &d.padding_in_loss,
       .help =
           "pad to the longest, and let the padding count in the loss, as in scripts whose labels "
           "are the padded ids: for comparison with such, since it teaches nothing"},
      {.theme = kData,
       .key = "data.include_multiturn_conversations",
       .slot = &d.include_multiturn_conversations,
       .help = "every question of a conversation as a sample (LIMA, Deita)"},
      {.theme = kData,
       .key = "data.seed",
       .slot = &d.seed,
       .help = "seed of the split and of the shuffling"},
      {.theme = kData,
       .key = "data.num_workers",
       .slot = &d.num_workers,
       .help = "threads that tokenize text and decode pictures",
       .min = 0,
       .max = 1024,
       .aliases = {"num_workers"}},
      {.theme = kData,
       .key = "data.download_dir",
       .slot = &d.download_dir,
       .help = "where fetched data sets are kept; none: the per-user cache",
       .kind = TextKind::Directory},
  };
}

std::vector<Row> machine_rows(std::string& accelerator, std::string& memory_budget,
                              int64_t& num_threads, bool& verbose) {
  return {
      {.theme = kMachine,
       .key = "accelerator",
       .slot = &accelerator,
       .help = "where to compute; auto: on the GPU where this build has CUDA and one is visible",
       .choices = {"auto", "cpu", "cuda"}},
      {.theme = kMachine,
       .key = "memory_budget",
       .slot = &memory_budget,
       .help = "treat the device as one of this size, driver and libraries of a GPU included; "
               "beyond it the run is out of memory; of several processes each one's own",
       .min = kLeastMemory,
       .kind = TextKind::Bytes,
       .common = true},
      {.theme = kMachine,
       .key = "num_threads",
       .slot = &num_threads,
       .help = "CPU threads; 0: one per core",
       .min = 0,
       .max = 4096},
      {.theme = kMachine,
       .key = "verbose",
       .slot = &verbose,
       .help = "say more about what is done and why"},
  };
}

std::vector<std::string> precision_names() {
  return {"32-true", "bf16-true", "16-true", "bf16-mixed", "16-mixed"};
}

const IgnoredKey* find_ignored_key(std::string_view key) {
  static constexpr std::string_view kNoOnlineLogger = "no online logger is written";
  static constexpr std::string_view kKnownSet = "a named data set knows where it comes from";
  static constexpr std::string_view kOneWay = "the optimizer has one implementation";
  static constexpr IgnoredKey kKeys[] = {
      {"log.project", kNoOnlineLogger},
      {"log.run", kNoOnlineLogger},
      {"log.group", kNoOnlineLogger},
      {"data.repo_id", kKnownSet},
      {"data.file_url", kKnownSet},
      {"data.url", kKnownSet},
      {"data.file_name", kKnownSet},
      {"data.access_token", "give --access_token"},
      {"data.subsets", "all subsets are used"},
      {"optimizer.fused", kOneWay},
      {"optimizer.foreach", kOneWay},
      {"optimizer.capturable", kOneWay},
      {"optimizer.differentiable", kOneWay},
  };
  for (const IgnoredKey& known : kKeys)
    if (known.key == key) return &known;
  return nullptr;
}

}  // namespace snug::config
