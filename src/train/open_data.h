// A recipe's data, tokenized for its model.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "config/recipe.h"
#include "data/dataset.h"
#include "models/model.h"
#include "tokenizer/tokenizer.h"

namespace snug::train {

// Samples of a random rule, which are made and need no tokenizer.
bool is_synthetic(const config::DataOptions& data);

// Tokens of the longest sample that the recipe allows: train.max_seq_length, or what the model can
// see, of a caption what is usual. Throws UserError where a picture's places leave no room.
int64_t longest_sample(const config::Recipe& recipe, const models::Model& model);

// What a recipe's data options say for a model, but for what is held out and how long samples may
// be. `checkpoint` as in open_data().
data::DatasetOptions dataset_options(const config::DataOptions& d, const models::Model& model,
                                     const std::filesystem::path& checkpoint);

// Fetches a named set first where it is not cached yet. `checkpoint` is the model's folder, whose
// preprocessor_config.json says how pictures are resized. Without a tokenizer (null) data must be
// synthetic.
data::Dataset open_data(const config::Recipe& recipe, const models::Model& model,
                        const std::filesystem::path& checkpoint,
                        const tokenizer::Tokenizer* tokenizer);

}  // namespace snug::train
