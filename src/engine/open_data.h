// A recipe's data, tokenized for its model.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "data/dataset.h"
#include "models/model.h"
#include "recipe/recipe.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::engine {

// Samples of a random rule, which are made and need no tokenizer.
bool is_synthetic(const recipe::DataOptions& data);

// Tokens of the longest sample that the recipe allows: train.max_seq_length, or what the model can
// see, of a caption what is usual. Throws UserError where a picture's places leave no room.
int64_t longest_sample(const recipe::Recipe& recipe, const models::Model& model);

// Warns where train.max_seq_length is more than the model can see.
void tell_of_shorter_samples(const recipe::Recipe& recipe, const models::Model& model);

// What a recipe's data options say where only a tokenizer is known: text for a decoder.
data::DatasetOptions dataset_options(const recipe::DataOptions& d);
// What a recipe's data options say for a model, but for what is held out and how long samples may
// be. `checkpoint` as in open_data().
data::DatasetOptions dataset_options(const recipe::DataOptions& d, const models::Model& model,
                                     const std::filesystem::path& checkpoint);

// Loads what the options name, with what the recipe says of the split and the prompt style. Fetches
// a named set first where it is not cached yet.
data::Dataset load_data(const recipe::Recipe& recipe, data::DatasetOptions options,
                        const tokenizer::Tokenizer& tokenizer);

// The same for a recipe's own data; synthetic data too. `checkpoint` is the model's folder, whose
// preprocessor_config.json says how pictures are resized. Without a tokenizer (null) data must be
// synthetic.
data::Dataset open_data(const recipe::Recipe& recipe, const models::Model& model,
                        const std::filesystem::path& checkpoint,
                        const tokenizer::Tokenizer* tokenizer);

}  // namespace snug::engine
