// Another model than the one at hand, asked about the same rows: a teacher, or what answers are
// compared with.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "data/dataset.h"
#include "engine/language_model.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::engine {

struct AskedModelOptions {
  std::string option;  // that names it, for messages
  std::string path;    // a model's or an adapter's folder, or a GGUF file
  std::string precision;
  const recipe::DataOptions* data = nullptr;
};

// Throws UserError where it is no model of texts alone, or has another tokenizer than `own`, which
// made the samples: where a token of theirs, or one in a hundred of all, is another one.
LanguageModel open_asked_model(const AskedModelOptions& options, at::Device device,
                               const tokenizer::Tokenizer& own, const data::Dataset& dataset);

}  // namespace snug::engine
