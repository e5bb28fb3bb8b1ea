// Opens and checks a checkpoint's tokenizer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>

#include "files/weights/gguf/gguf.h"
#include "models/family.h"
#include "recipe/recipe.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::engine {

// Whether open_tokenizer() finds one.
bool has_tokenizer(const models::Checkpoint& checkpoint);

// What data.chat_template, data.eos_token and tokens.add change. Throws UserError if the template
// is nowhere.
tokenizer::TokenizerChanges changes_of(const recipe::DataOptions& data);

// Reads the checkpoint's folder, or the vocabulary inside a GGUF file; in its place the folder of
// an `adapter` where that says something else, since it was trained so. `data` changes either.
// Throws UserError.
std::unique_ptr<tokenizer::Tokenizer> open_tokenizer(const models::Checkpoint& checkpoint,
                                                     const std::filesystem::path& adapter = {},
                                                     const recipe::DataOptions& data = {});

// Writes the keys tokenizer.* of a GGUF file.
void write_vocabulary(const tokenizer::GgufVocabulary& vocabulary, files::GgufWriter& out);

}  // namespace snug::engine
