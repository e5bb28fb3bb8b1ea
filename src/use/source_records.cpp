// SPDX-License-Identifier: Apache-2.0
#include "use/source_records.h"

#include <fmt/format.h>

#include <utility>

namespace snug::use {

std::vector<report::SourceRecord> source_records(const data::Dataset& dataset) {
  std::vector<report::SourceRecord> records;
  const bool has_scores = dataset.batch_options.reading.scores_documents;
  int64_t train_begin = 0, validation_begin = 0;
  for (const data::MixedSource& source : dataset.sources) {
    const int64_t samples = source.train_end - std::exchange(train_begin, source.train_end);
    records.push_back(
        {.name = source.name,
         .samples = samples / source.copies,
         .held_out = source.validation_end - std::exchange(validation_begin, source.validation_end),
         .per_epoch = source.per_epoch,
         .style = has_scores ? source.prompt_style
                             : fmt::format("{}, {}", source.prompt_style,
                                           data::words_on_loss(source.masks_prompts))});
  }
  return records;
}

}  // namespace snug::use
