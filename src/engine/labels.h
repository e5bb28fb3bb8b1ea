// The head that an objective wants of a model: the vocabulary's, or one that scores documents for
// the labels of the rows. The model says which it has (models/score_head.h), so that plans, runs,
// exports and adapters see the same.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "models/family.h"
#include "recipe/recipe.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::engine {

// Gives the checkpoint's model the head that the recipe's objective trains, before anything knows
// its parameters: its own where it scores documents already, else a new one for the labels that the
// training rows have; two where no rows are named, one for rewards. `tokenizer`: null if there is
// none. Throws UserError for a model and an objective that do not go together.
void prepare_head(models::Checkpoint& checkpoint, const recipe::Recipe& recipe,
                  const tokenizer::Tokenizer* tokenizer);

// An adapter's base, open, with the head that was trained beside the adapter, if there is one, and
// with rows for tokens that the adapter adds.
models::Checkpoint open_base(const std::filesystem::path& adapter,
                             const std::filesystem::path& base);

// labels.json beside an adapter, since its base knows nothing of its labels.
void write_labels_file(const std::filesystem::path& folder, const std::vector<std::string>& labels);

}  // namespace snug::engine
