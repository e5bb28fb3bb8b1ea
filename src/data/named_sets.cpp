// SPDX-License-Identifier: Apache-2.0
#include "data/named_sets.h"

namespace snug::data {

std::span<const NamedSet> named_sets() {
  static const std::vector<NamedSet> sets = {
      // Alpaca2k is split by the `datasets` library, which rounds the share up.
      {.name = "Alpaca2k",
       .repo_id = "mhenrichsen/alpaca_2k_test",
       .train_patterns = {"*.parquet"},
       .val_split_fraction = 0.05,
       .rounding = SplitRounding::Up},
      {.name = "Alpaca",
       .repo_id = "yahma/alpaca-cleaned",
       .train_patterns = {"alpaca_data_cleaned.json"},
       .val_split_fraction = 0.03865},
      {.name = "AlpacaGPT4",
       .repo_id = "vicgalle/alpaca-gpt4",
       .train_patterns = {"data/train-*.parquet"},
       .val_split_fraction = 0.03847},
      {.name = "Dolly",
       .repo_id = "databricks/databricks-dolly-15k",
       .train_patterns = {"databricks-dolly-15k.jsonl"},
       .val_split_fraction = 0.1,
       .columns = {"instruction", "context", "response"}},
      {.name = "LIMA",
       .repo_id = "GAIR/lima",
       .train_patterns = {"train.jsonl"},
       .val_split_fraction = 0.1},
      {.name = "Deita",
       .repo_id = "HuggingFaceH4/deita-10k-v0-sft",
       .train_patterns = {"data/train_sft-*.parquet"},
       .validation_patterns = {"data/test_sft-*.parquet"}},
      {.name = "LongForm",
       .repo_id = "akoksal/LongForm",
       .train_patterns = {"data/train-*.parquet"},
       .validation_patterns = {"data/validation-*.parquet"},
       .columns = {"input", "", "output"},
       .prompt_style = "longform"},
      {.name = "FLAN",
       .repo_id = "Muennighoff/flan",
       .train_patterns = {"train/*_10templates_train.jsonl"},
       .validation_patterns = {"test/*_10templates_test.jsonl"},
       .columns = {"inputs", "", "targets"},
       .prompt_style = "flan"},
  };
  return sets;
}

}  // namespace snug::data
