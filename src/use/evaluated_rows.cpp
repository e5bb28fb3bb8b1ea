// SPDX-License-Identifier: Apache-2.0
#include "use/evaluated_rows.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "engine/open_data.h"
#include "use/generate/prompts.h"

namespace snug::use {

data::DatasetOptions evaluated_options(const recipe::EvaluateOptions& options,
                                       const engine::LanguageModel& lm) {
  const recipe::DataOptions& d = options.data;
  data::DatasetOptions result = engine::dataset_options(d, *lm.model, lm.path);
  result.part = "evaluated";
  const data::Reading& reading = result.reading;
  const bool captions =
      reading.image_size > 0 &&
      (d.class_path == "ImageFolder" || d.class_path == "HFDataset" || engine::is_synthetic(d));
  result.max_seq_length =
      std::min(options.max_seq_length.value_or(engine::usual_length(d, *lm.model)),
               lm.model->dimensions().max_positions);
  if (!captions || reading.pictures_anywhere) {
    const auto record =
        prompts_of_training(lm, lm.adapters.empty() ? nullptr : &lm.adapters.front());
    // Captions have no questions that another style could be of.
    const bool is_usable =
        record && (!captions || record->style == "chat" || record->style == "plain");
    if (is_usable && d.prompt_style == "auto") result.prompt_style = record->style;
    if (record && !options.mask_prompt_given)
      result.mask_prompt = record->mask_prompt ? record->mask_prompt : d.mask_prompt;
  }
  // With "all" nothing is held out, so the training split is the whole file. A folder or a separate
  // validation file defines the split itself.
  const bool one_file = !d.val_path && !std::filesystem::is_directory(d.json_path);
  if (one_file) result.val_split_fraction = options.split == "all" ? 0.0 : d.val_split_fraction;
  return result;
}

namespace {

// Ids without loss are stored as their complements.
void check_ids(const data::SampleStore& samples, const engine::LanguageModel& lm) {
  int32_t largest = 0;
  for (int64_t i = 0; i < samples.count(); ++i)
    for (const int32_t id : samples.stored_ids(i)) largest = std::max(largest, id < 0 ? ~id : id);
  if (const int64_t rows = lm.model->dimensions().vocabulary; largest >= rows)
    throw UserError(
        "the data contains token {}, but the model's embedding has {} rows: the tokenizer in {} "
        "belongs to another model",
        largest, rows, lm.path.string());
}

}  // namespace

EvaluatedRows::EvaluatedRows(const recipe::EvaluateOptions& options,
                             const data::DatasetOptions& read, const engine::LanguageModel& lm)
    : dataset_(data::load_dataset(
          read, data::make_encoder(*lm.tokenizer),
          [](const data::DownloadRequest& request) -> std::vector<std::filesystem::path> {
            throw UserError(
                "data set {} is not in the cache; train on it once to download it, or give a file "
                "with "
                "--data JSON --data.json_path FILE",
                request.repo_id);
          })),
      held_out_(options.split == "val"),
      most_(options.max_iters.value_or(0) * options.micro_batch_size) {
  if (samples().empty()) throw UserError("the {} split of the data is empty", options.split);
  check_ids(samples(), lm);
}

void check_finite(double number, const std::string& what, const recipe::EvaluateOptions& options) {
  if (!std::isfinite(number))
    throw UserError(
        "{} is {}: the weights of {} contain NaN or infinities, or are too large for --precision "
        "{}; snug verify names damaged files",
        what, number, options.checkpoint_dir, options.precision);
}

}  // namespace snug::use
