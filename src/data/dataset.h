// From `--data …` to tokenized training and validation samples. The named sets of LitGPT are
// fetched once through a function handed in and then read from the cache folder; this folder knows
// no network.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/sample_store.h"
#include "data/text_encoder.h"

namespace snug::data {

struct DatasetOptions {
  std::string name = "JSON";             // JSON, or a named set: Alpaca2k, Alpaca, …
  std::filesystem::path json_path = {};  // for JSON: a file, or a folder with train and val files
  std::filesystem::path val_path = {};   // for JSON: a file of its own for validation
  std::optional<double> val_split_fraction =
      {};                         // unset: the set's own; JSON files: nothing held out
  std::string prompt_style = "";  // empty: the set's own, "alpaca" for JSON
  bool mask_prompt = false;
  bool include_multiturn_conversations = false;
  int32_t ignore_index = -100;
  uint64_t seed = 42;
  int num_workers = 4;
  int64_t max_seq_length = 0;               // 0: no limit
  std::filesystem::path cache_folder = {};  // empty: default_cache_folder()
};

// Files of one hub data set, wanted in `folder`. Patterns are shell globs on paths in the
// repository.
struct DownloadRequest {
  std::string repo_id;
  std::vector<std::string> patterns;
  std::filesystem::path folder;
};
using DownloadFunction = std::function<std::vector<std::filesystem::path>(const DownloadRequest&)>;

struct Dataset {
  SampleStore train, validation;
  std::vector<Row> validation_rows;  // the first few held-out rows as text, to show sample answers
  std::string prompt_style;          // as resolved
};

Dataset load_dataset(const DatasetOptions& options, const TextEncoder& encoder,
                     const DownloadFunction& download);

// Names that `--data` takes.
std::vector<std::string> dataset_names();

// $SNUG_CACHE/data, else $XDG_CACHE_HOME/snug/data, else ~/.cache/snug/data.
std::filesystem::path default_cache_folder();

}  // namespace snug::data
