// Trained or converted weights as a folder that others load: transformers, or LitGPT.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>

#include "models/model.h"
#include "tokenizer/tokenizer.h"

namespace snug::setup {

// Gives a parameter's value, of one type throughout; asked for one parameter at a time, so that a
// conversion holds no more than one.
using ParameterReader = std::function<at::Tensor(const nn::Parameter&)>;

// The value that is in memory.
at::Tensor resident_value(const nn::Parameter& parameter);

struct ExportOptions {
  at::ScalarType dtype = at::kBFloat16;  // what the reader returns
  int64_t max_shard_bytes = 5'000'000'000;
};

// A Hugging Face directory: weights, config.json, generation_config.json and the tokenizer.
// `directory` is written under a temporary name and replaced whole.
void export_hugging_face(const std::filesystem::path& directory, models::Model& model,
                         const tokenizer::Tokenizer& tokenizer, const ParameterReader& read,
                         const ExportOptions& options);

// lit_model.pth, model_config.yaml and the tokenizer, as LitGPT lays them out.
void export_litgpt(const std::filesystem::path& directory, models::Model& model,
                   const tokenizer::Tokenizer& tokenizer, const ParameterReader& read,
                   const ExportOptions& options);

}  // namespace snug::setup
