// Loads `--data …` as tokenized training and validation samples and makes their micro-batches.
// LitGPT's named sets are downloaded once by a function passed in, then read from the cache folder;
// this folder has no network code.
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

#include "data/micro_batch.h"
#include "data/pictures/picture_processor.h"
#include "data/pictures/picture_rows.h"
#include "data/prompts.h"
#include "data/sample_store.h"

namespace snug::data {

struct DatasetOptions {
  // JSON, HFDataset, ImageFolder, TextFiles or a named set: Alpaca, …; for Synthetic see
  // load_synthetic()
  std::string name = "JSON";
  std::filesystem::path json_path = {};  // for JSON: a file, or a folder with train and val files
  std::filesystem::path val_path = {};   // for JSON: a separate validation file
  std::optional<double> val_split_fraction =
      {};                         // unset: the set's own; for JSON files: no validation
  std::string prompt_style = {};  // empty: the set's own, for files usual_style()
  // Empty: of rows of turns.
  std::optional<bool> mask_prompt = {};
  bool include_multiturn_conversations = false;
  bool split_turns = false;    // see split_turns()
  bool preferences = false;    // rows say which of two answers is better
  bool share_prompts = false;  // of both answers (SampleStore::share_prompts)
  bool ratings = false;        // rows say of an answer whether it is good
  bool classes = false;        // rows are texts, each with one of these labels
  std::vector<std::string> labels = {};
  bool keep_empty_answers = false;  // of chats: learn that nothing is said
  LongRows long_rows = LongRows::Cut;
  int64_t overlap = 0;             // tokens that pieces of a split row share
  bool keep_without_loss = false;  // samples from which nothing is learnt, to look at them
  int32_t ignore_index = -100;
  uint64_t seed = 42;
  int num_workers = 4;
  int64_t max_seq_length = 0;               // 0: no limit; with pictures see make_caption_sample
  std::filesystem::path cache_folder = {};  // empty: default_cache_folder()
  bool packing = true;
  bool padding_in_loss = false;
  std::optional<int64_t> max_samples = {};  // rows to use, after shuffling

  std::filesystem::path path = {};  // for HFDataset, ImageFolder and TextFiles
  // For HFDataset and ImageFolder.
  std::string split = "train";
  std::string subset = {};     // of HFDataset; empty: the default one
  std::string val_split = {};  // of HFDataset, instead of rows held out
  std::string image_column = "auto";
  std::string text_column = "auto";
  std::string prompt = {};  // before every caption

  Reading reading = {};  // what the model reads
  PictureProcessor processor = {};
  int64_t vocabulary = 0;         // rows of its embedding
  bool warns = true;              // warn of truncated samples and omitted answers
  const char* part = "training";  // as these rows are called there, but for those held out
  std::string source = {};        // of a mix, which load_mix() finishes: its name there
};

// Files of a hub data set to download to `folder`. Patterns are shell globs on paths in the
// repository.
struct DownloadRequest {
  std::string repo_id;
  std::vector<std::string> patterns;
  std::filesystem::path folder;
};
using DownloadFunction = std::function<std::vector<std::filesystem::path>(const DownloadRequest&)>;

// The pictures of each sample; without `rows` samples have no pictures.
struct PictureIndex {
  std::shared_ptr<const PictureRows> rows;
  std::vector<int64_t> row_of;  // by picture, sample by sample
  // Chats: where each sample's pictures begin in row_of, and the end. Empty: one picture each.
  std::vector<int64_t> first;

  bool are_captions() const { return rows != nullptr && first.empty(); }
  std::span<const int64_t> rows_of(int64_t sample) const {
    const auto i = static_cast<size_t>(sample);
    const std::span<const int64_t> all(row_of);
    if (first.empty()) return all.subspan(i, 1);
    return all.subspan(static_cast<size_t>(first[i]), static_cast<size_t>(first[i + 1] - first[i]));
  }
};

// Number of rows of each kind; a row that became several samples counts several times.
struct RowCounts {
  int64_t questions = 0, questions_with_input = 0, chats = 0, completions = 0, texts = 0;
};

// One of the sources that a data set is mixed of. Its samples are those before these ends, from
// where those of the source before end.
struct MixedSource {
  std::string name;
  int64_t train_end = 0, validation_end = 0;
  int64_t copies = 1;     // of each training sample, since an epoch has it several times
  int64_t per_epoch = 0;  // training samples, copies counted
  std::string prompt_style;
  std::optional<bool> masks_prompts;
};

// Tokens of a block of text where nobody says how many, or the model takes fewer.
inline constexpr int64_t kUsualBlock = 2048;

// Rows in Dataset::validation_rows, at most.
inline constexpr size_t kShownRows = 16;

struct Dataset {
  // The first column of ratings says which are desirable (1, else 0).
  SampleStore train, validation;
  // Each rated sample's prompt with an answer to another one; else empty.
  SampleStore train_others, validation_others;
  std::vector<int64_t> train_numbers, validation_numbers;  // each sample's row; empty for pictures
  RowCounts row_counts;
  PictureIndex train_pictures, validation_pictures;
  // How samples become micro-batches; without picture settings if the samples have no pictures.
  MicroBatchOptions batch_options;
  PictureProcessor processor;
  int num_workers = 4;
  std::vector<Row> validation_rows;  // the first few held-out rows as text, to show sample answers
  std::string prompt_style;          // as resolved
  std::string prompt_style_reason;   // "given", or why it was chosen
  std::string system;                // the message with which every chat begins; empty: none
  std::vector<std::string> unread;   // columns that nothing reads
  std::vector<MixedSource> sources;  // empty: one, all of whose samples an epoch has

  // The sources of training and validation micro-batches; borrow the data set.
  std::unique_ptr<BatchSource> train_batches() const;
  std::unique_ptr<BatchSource> validation_batches() const;
};

// Whether prompts have no loss: as `given`, or else in rows of turns; nothing: in some of the rows.
// Questions about pictures never have any.
std::optional<bool> masks_prompts(const Dataset& dataset, std::optional<bool> given);
std::string words_on_loss(std::optional<bool> masks);  // "answers only", …

// The default prompt style for these rows: the model's chat template for chats if it has one, plain
// for ready prompts, alpaca for the rest.
std::string usual_style(std::span<const Row> rows, const TextEncoder& encoder);

Dataset load_dataset(const DatasetOptions& options, const TextEncoder& encoder,
                     const DownloadFunction& download);

// The names of the labels that the training rows of all these have, by number (rows/label_rows.h).
std::vector<std::string> find_labels(const std::vector<DatasetOptions>& sources);

// Adds what depends on all samples together: which tokens pairs share, and answers to other
// prompts. For load_mix(); load_dataset() has done it.
void relate_samples(Dataset& dataset, const DatasetOptions& options);

// The micro-batch options for these data options; `pad` as in TextEncoder. Throws UserError if
// padding is to be learned and there is no padding token.
MicroBatchOptions batch_options(const DatasetOptions& options, const Reading& reading, int32_t pad);

// The names that `--data` accepts.
std::vector<std::string> dataset_names();

// $SNUG_CACHE/data, else $XDG_CACHE_HOME/snug/data, else ~/.cache/snug/data.
std::filesystem::path default_cache_folder();

}  // namespace snug::data
