// Opens and checks a checkpoint's tokenizer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>

#include "files/weights/gguf/gguf.h"
#include "models/family.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::engine {

// Reads the checkpoint's folder, or the vocabulary inside a GGUF file. Throws UserError.
std::unique_ptr<tokenizer::Tokenizer> open_tokenizer(const models::Checkpoint& checkpoint);

// Writes the keys tokenizer.* of a GGUF file.
void write_vocabulary(const tokenizer::GgufVocabulary& vocabulary, files::GgufWriter& out);

}  // namespace snug::engine
