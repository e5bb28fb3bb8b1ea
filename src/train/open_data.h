// A recipe's data, tokenized for its model.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/recipe.h"
#include "data/dataset.h"
#include "tokenizer/tokenizer.h"

namespace snug::train {

// Fetches a named set first where it is not cached yet.
data::Dataset open_data(const config::Recipe& recipe, const tokenizer::Tokenizer& tokenizer);

}  // namespace snug::train
