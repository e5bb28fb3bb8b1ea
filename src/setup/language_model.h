// A checkpoint opened to be used rather than trained: weights, executor, tokenizer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "exec/executor.h"
#include "models/family.h"
#include "nn/precision.h"
#include "tokenizer/tokenizer.h"

namespace snug::setup {

struct LanguageModel {
  std::unique_ptr<models::Model> model;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::unique_ptr<exec::Executor> executor;
  nn::Precision precision;
};

// Loads the whole model onto `device`, for sequences of up to `max_seqlen` tokens; 0: as many as
// the model was made for.
LanguageModel open_language_model(const std::filesystem::path& path, const std::string& precision,
                                  at::Device device, int64_t max_seqlen);

}  // namespace snug::setup
