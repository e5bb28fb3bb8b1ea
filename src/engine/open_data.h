// A recipe's data, tokenized for its model.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

#include "data/dataset.h"
#include "models/model.h"
#include "recipe/recipe.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::engine {

// Whether the data are synthetic: generated samples, which need no tokenizer.
bool is_synthetic(const recipe::DataOptions& data);

// The most tokens of a sample where nobody says it: the model's maximum, or a default for captions,
// encoders and texts, which may be more than that.
int64_t usual_length(const recipe::DataOptions& data, const models::Model& model);

// The most tokens of a sample: train.max_seq_length, or what is usual, at most the model's maximum.
// Throws UserError if a picture's placeholders leave no room for text.
int64_t longest_sample(const recipe::Recipe& recipe, const models::Model& model);

// Warns if train.max_seq_length is more than the model's maximum.
void tell_of_shorter_samples(const recipe::Recipe& recipe, const models::Model& model);

// The options for loading each source of a recipe's data, to see which rows they have.
std::vector<data::DatasetOptions> sources_of(const recipe::Recipe& recipe);

// Fetches a data set that is named as on the hub (ORG/NAME) and not in data/ORG/NAME: its README.md
// and the files of the split, subset and val_split. Says so, with the licence. Several processes
// may call it at once. Throws UserError with the command to fetch it elsewhere.
void fetch_hub_set(const data::DatasetOptions& options, const std::string& access_token);

// The options for loading a recipe's data, for a decoder of text.
data::DatasetOptions dataset_options(const recipe::DataOptions& d);
// The same for any model; the caller adds the validation split and the longest sample.
// `checkpoint` as in open_data().
data::DatasetOptions dataset_options(const recipe::DataOptions& d, const models::Model& model,
                                     const std::filesystem::path& checkpoint);

// Loads the data with the recipe's validation split and prompt style. Downloads a named data set
// first unless it is cached.
data::Dataset load_data(const recipe::Recipe& recipe, data::DatasetOptions options,
                        const tokenizer::Tokenizer& tokenizer);

// Loads a recipe's data, which may be synthetic. `checkpoint` is the model's folder, whose
// preprocessor_config.json says how pictures are resized. `tokenizer` is null for synthetic data.
data::Dataset open_data(const recipe::Recipe& recipe, const models::Model& model,
                        const std::filesystem::path& checkpoint,
                        const tokenizer::Tokenizer* tokenizer);

}  // namespace snug::engine
