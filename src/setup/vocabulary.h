// The tokenizer that belongs to a checkpoint, wherever it lies.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>

#include "formats/gguf.h"
#include "models/family.h"
#include "tokenizer/tokenizer.h"

namespace snug::setup {

// From the checkpoint's folder, or from the vocabulary inside a GGUF file. Throws UserError.
std::unique_ptr<tokenizer::Tokenizer> open_tokenizer(const models::Checkpoint& checkpoint);

// Throws UserError, naming the checkpoint, where a token has no row in the model's embedding.
void check_tokens(const tokenizer::Tokenizer& tokenizer, const models::Model& model,
                  const std::filesystem::path& checkpoint);

// The keys tokenizer.* of a GGUF file being written.
void write_vocabulary(const tokenizer::GgufVocabulary& vocabulary, formats::GgufWriter& out);

}  // namespace snug::setup
