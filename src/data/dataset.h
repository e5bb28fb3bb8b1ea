// From `--data …` to tokenized training and validation samples, and to their micro-batches. The
// named sets of LitGPT are fetched once through a function handed in and then read from the cache
// folder; this folder knows no network.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/batch_source.h"
#include "data/picture_processor.h"
#include "data/picture_rows.h"
#include "data/sample_store.h"
#include "data/text_encoder.h"

namespace snug::data {

struct DatasetOptions {
  // JSON, HFDataset, ImageFolder or a named set: Alpaca, …; for Synthetic see load_synthetic()
  std::string name = "JSON";
  std::filesystem::path json_path = {};  // for JSON: a file, or a folder with train and val files
  std::filesystem::path val_path = {};   // for JSON: a file of its own for validation
  std::optional<double> val_split_fraction =
      {};                         // unset: the set's own; JSON files: nothing held out
  std::string prompt_style = "";  // empty: the set's own, for files usual_style()
  bool mask_prompt = false;
  bool include_multiturn_conversations = false;
  int32_t ignore_index = -100;
  uint64_t seed = 42;
  int num_workers = 4;
  int64_t max_seq_length = 0;               // 0: no limit; with pictures see make_caption_sample
  std::filesystem::path cache_folder = {};  // empty: default_cache_folder()
  bool packing = true;
  bool padding_in_loss = false;
  std::optional<int64_t> max_samples = {};  // the first so many after shuffling

  // Of HFDataset and ImageFolder.
  std::filesystem::path path = {};
  std::string split = "train";
  std::string image_column = "auto";
  std::string text_column = "auto";
  std::string prompt = "";  // before every caption

  Reading reading = {};  // what the model reads
  PictureProcessor processor = {};
  int64_t vocabulary = 0;  // rows of its embedding, for Synthetic
  bool warns = true;       // of samples that are cut, and answers that are left out
};

// Files of one hub data set, wanted in `folder`. Patterns are shell globs on paths in the
// repository.
struct DownloadRequest {
  std::string repo_id;
  std::vector<std::string> patterns;
  std::filesystem::path folder;
};
using DownloadFunction = std::function<std::vector<std::filesystem::path>(const DownloadRequest&)>;

// Which picture belongs to each sample; without rows the samples are tokens alone.
struct PictureIndex {
  std::shared_ptr<const PictureRows> rows;
  std::vector<int64_t> row_of;  // by sample
};

// Rows by what their columns are; a row that became several samples counts as often.
struct RowCounts {
  int64_t questions = 0, questions_with_input = 0, chats = 0, completions = 0, texts = 0;
};

struct Dataset {
  SampleStore train, validation;
  std::vector<int64_t> train_numbers, validation_numbers;  // each sample's row; none of pictures
  RowCounts row_counts;
  PictureIndex train_pictures, validation_pictures;
  // How these samples become micro-batches. Says nothing of pictures where the samples have none.
  MicroBatchOptions batch_options;
  PictureProcessor processor;
  int num_workers = 4;
  std::vector<Row> validation_rows;  // the first few held-out rows as text, to show sample answers
  std::string prompt_style;          // as resolved
  std::string prompt_style_reason;   // "given", or what speaks for it

  // Where training and validation get their micro-batches; borrows the data set.
  std::unique_ptr<BatchSource> train_batches() const;
  std::unique_ptr<BatchSource> validation_batches() const;
};

// What rows are written in where nobody says so: chats in the model's own template if it has one,
// ready prompts as they are (plain), the rest as Alpaca's.
std::string usual_style(std::span<const Row> rows, const TextEncoder& encoder);

Dataset load_dataset(const DatasetOptions& options, const TextEncoder& encoder,
                     const DownloadFunction& download);

// How these options' samples become micro-batches; `pad` as in TextEncoder. Throws UserError where
// padding is to be learnt and there is no token for it.
MicroBatchOptions batch_options(const DatasetOptions& options, const Reading& reading, int32_t pad);

// Names that `--data` takes.
std::vector<std::string> dataset_names();

// $SNUG_CACHE/data, else $XDG_CACHE_HOME/snug/data, else ~/.cache/snug/data.
std::filesystem::path default_cache_folder();

}  // namespace snug::data
