// Tokens that a recipe adds to its model's vocabulary (tokens.add): rows of the embedding and of
// the head, which train whole, beside adapters too, and are saved as peft's modules_to_save there.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "models/family.h"
#include "recipe/recipe.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::engine {

// Gives the model rows for the tokens that it has none for yet, before anything knows its
// parameters. `tokenizer`: with these tokens; null: none is known, and all are new. Throws
// UserError for a model that takes no more.
void add_tokens(models::Checkpoint& checkpoint, const recipe::Recipe& recipe,
                const tokenizer::Tokenizer* tokenizer);

// The same for the rows that an adapter brings.
void add_tokens_of_adapter(models::Checkpoint& checkpoint, const std::filesystem::path& adapter);

// Lets embedding and head train beside adapters, the head in place of one of its own. Throws
// UserError if no adapter is left.
void train_vocabulary(models::Model& model);

}  // namespace snug::engine
