// Rows held out for validation.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "data/rows.h"

namespace snug::data {

struct Split {
  std::vector<Row> train, validation;
};

enum class SplitRounding { Down, Up };

// How many of `num_rows` a fraction holds out: rounded as asked, at least 1 when fraction > 0.
// Throws UserError for a fraction outside [0, 1) or one that leaves nothing to train on.
int64_t validation_rows(int64_t num_rows, double fraction, SplitRounding rounding);

// The share of a HFDataset or ImageFolder that is held out where nobody says otherwise.
inline constexpr double kUsualHeldOut = 0.05;

// `count` rows in an order that the seed alone decides about, of which the first `max_samples` are
// taken.
std::vector<int64_t> choose_rows(int64_t count, std::optional<int64_t> max_samples, uint64_t seed);

// Holds out a random share, the same for the same seed everywhere (random.h). Both parts come in
// shuffled order. LitGPT rounds its share down, and so do we by default.
Split split_rows(std::vector<Row> rows, double val_split_fraction, uint64_t seed,
                 SplitRounding rounding = SplitRounding::Down);

// A folder with train.json and val.json (or .jsonl, .parquet), as LitGPT's JSON data takes it.
Split read_split_folder(const std::filesystem::path& folder, const Columns& columns = {});

}  // namespace snug::data
