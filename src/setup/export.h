// Trained or converted weights as what others load: a folder for transformers or LitGPT, or a GGUF
// file for llama.cpp and its kin.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>

#include "checkpoint/peft_adapter.h"
#include "models/model.h"
#include "tokenizer/tokenizer.h"

namespace snug::setup {

// Gives a parameter's value, of the type that is written; asked for one parameter at a time, so
// that a conversion holds no more than one.
using ParameterReader = std::function<at::Tensor(const nn::Parameter&)>;

// The value that is in memory.
at::Tensor resident_value(const nn::Parameter& parameter);

struct ExportOptions {
  at::ScalarType dtype = at::kBFloat16;
  int64_t max_shard_bytes = 5'000'000'000;
  std::filesystem::path processor;  // the folder whose picture processor goes along
};

// A Hugging Face directory: weights, config.json, generation_config.json, the tokenizer (null:
// there is none) and, where the model reads pictures, their processor. `directory` is written under
// a temporary name and replaced whole.
void export_hugging_face(const std::filesystem::path& directory, models::Model& model,
                         const tokenizer::Tokenizer* tokenizer, const ParameterReader& read,
                         const ExportOptions& options);

// What they take on disk, to a fraction of a percent: the small files beside weights and vocabulary
// are estimated.
int64_t hugging_face_bytes(models::Model& model, const tokenizer::Tokenizer* tokenizer,
                           const ExportOptions& options);
int64_t peft_directory_bytes(const checkpoint::Adapter& shapes,
                             const tokenizer::Tokenizer* tokenizer);

// Ends what a program that was killed while it replaced this directory had begun: the directory is
// there whole, old or new, and what was beside it is gone.
void finish_replacing(const std::filesystem::path& directory);

// A PEFT directory: the adapter, whose tensors are on meta and come from `values`, and the
// tokenizer (null: there is none).
void export_peft(const std::filesystem::path& directory, const checkpoint::Adapter& shapes,
                 const checkpoint::AdapterValues& values, const tokenizer::Tokenizer* tokenizer);

// lit_model.pth, model_config.yaml and the tokenizer, as LitGPT lays them out.
void export_litgpt(const std::filesystem::path& directory, models::Model& model,
                   const tokenizer::Tokenizer& tokenizer, const ParameterReader& read,
                   const ExportOptions& options);

// One GGUF file with the vocabulary inside. Vectors (norms, biases) stay float32 whatever the
// dtype, as its readers want them; a reader may return them so.
void export_gguf(const std::filesystem::path& file, models::Model& model,
                 const tokenizer::Tokenizer& tokenizer, const ParameterReader& read,
                 const ExportOptions& options);

}  // namespace snug::setup
