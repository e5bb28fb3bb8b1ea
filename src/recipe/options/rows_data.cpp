// Options of snug data.
// SPDX-License-Identifier: Apache-2.0
#include <iterator>
#include <vector>

#include "recipe/options/rows.h"

namespace snug::recipe {
namespace {

constexpr std::string_view kShownData = "Data to show";

}  // namespace

std::vector<Row> show_data_rows(ShowDataOptions& o) {
  std::vector<Row> rows = {
      {.theme = kShownData,
       .key = "action",
       .slot = &o.action,
       .help = "show: print samples as the model sees them, and counts over all rows",
       .choices = {"show"},
       .required = true,
       .positional = true},
      {.theme = kShownData,
       .key = "file",
       .slot = &o.file,
       .help = "the data file, as for --data.json_path; with --data HFDataset or ImageFolder: the "
               "folder, as for --data.path",
       .kind = TextKind::File,
       .positional = true},
      {.theme = kShownData,
       .key = "checkpoint_dir",
       .slot = &o.checkpoint_dir,
       .help = "model whose tokenizer and chat template to use: a directory or a GGUF file; its "
               "weights are not read",
       .kind = TextKind::File,
       .shown = "model",
       .aliases = {"model"},
       .required = true},
      {.theme = kShownData,
       .key = "num_samples",
       .slot = &o.num_samples,
       .help = "show the first N rows; 0: counts only",
       .min = 0,
       .max = kMostSamplesAStep},
      {.theme = kShownData,
       .key = "row",
       .slot = &o.row,
       .help = "show row N instead, counted from 1",
       .min = 1,
       .max = 1e12},
      {.theme = kShownData,
       .key = "max_seq_length",
       .slot = &o.max_seq_length,
       .help = "truncate samples to N tokens, as train.max_seq_length does; none: the longest that "
               "the model allows",
       .min = 2,
       .max = kMostTokens,
       .aliases = {"train.max_seq_length"}},
      {.theme = kShownData,
       .key = "json",
       .slot = &o.json,
       .help = "print one JSON object instead of text"},
      {.theme = kShownData,
       .key = "access_token",
       .slot = &o.access_token,
       .help = "Hugging Face token for gated data sets",
       .secret = true},
      {.theme = kShownData,
       .key = "verbose",
       .slot = &o.verbose,
       .help = "print more about what is done and why"},
  };
  std::vector<Row> data = data_rows(o.data);
  rows.insert(rows.end(), std::make_move_iterator(data.begin()),
              std::make_move_iterator(data.end()));
  return rows;
}

}  // namespace snug::recipe
