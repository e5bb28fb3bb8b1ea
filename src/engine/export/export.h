// Writes weights in formats that other programs load: a directory for transformers or LitGPT, or a
// GGUF file for llama.cpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <string>

#include "files/checkpoint/adapters/peft_adapter.h"
#include "files/weights/gguf/importance.h"
#include "models/model.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::engine {

// Returns a parameter's value in the type to be written. Called for one parameter at a time, so
// that a conversion never holds more than one.
using ParameterReader = std::function<at::Tensor(const nn::Parameter&)>;

// The value that is in memory.
at::Tensor resident_value(const nn::Parameter& parameter);

// Writes more files into a directory before it is put in place.
using AddFiles = std::function<void(const std::filesystem::path& folder)>;

struct ExportOptions {
  at::ScalarType dtype = at::kBFloat16;
  std::string gguf_type = {};  // of a GGUF file, instead of dtype: a mix (files/weights/gguf/mix.h)
  const files::ImportanceMatrix* importance = nullptr;  // with which to quantize; null: without
  int64_t max_shard_bytes = 5'000'000'000;
  std::filesystem::path processor;  // the folder whose picture processor is copied
  AddFiles add = {};
};

// A Hugging Face directory: weights, config.json, generation_config.json, the tokenizer (null:
// there is none) and, where the model reads pictures, their processor. The directory is written
// under a temporary name and then renamed, so it is never incomplete.
void export_hugging_face(const std::filesystem::path& directory, models::Model& model,
                         const tokenizer::Tokenizer* tokenizer, const ParameterReader& read,
                         const ExportOptions& options);

// The size of that directory on disk, exact to a fraction of a percent: small files are estimated.
int64_t hugging_face_bytes(models::Model& model, const tokenizer::Tokenizer* tokenizer,
                           const ExportOptions& options);
int64_t peft_directory_bytes(const checkpoint::Adapter& shapes,
                             const tokenizer::Tokenizer* tokenizer);

// Throws UserError, beginning with `where`, if a finite value is beyond what float16 holds.
void check_fits_float16(const at::Tensor& value, const std::string& where);

// Whether a model's directory can be written there, in place of one or anew: throws UserError for a
// file, and for a folder that holds more than a model.
void check_replaceable(const std::filesystem::path& directory);

// Cleans up after a program that was killed while replacing this directory: afterwards the
// directory is complete, old or new, and temporary ones are removed.
void finish_replacing(const std::filesystem::path& directory);

// A PEFT directory: the adapter (shapes on meta, data from `values`) and the tokenizer (null:
// none).
void export_peft(const std::filesystem::path& directory, const checkpoint::Adapter& shapes,
                 const checkpoint::AdapterValues& values, const tokenizer::Tokenizer* tokenizer,
                 const AddFiles& add = {});

// lit_model.pth, model_config.yaml and the tokenizer, as LitGPT lays them out.
void export_litgpt(const std::filesystem::path& directory, models::Model& model,
                   const tokenizer::Tokenizer& tokenizer, const ParameterReader& read,
                   const ExportOptions& options);

// Makes the folder that a GGUF file goes into. Throws UserError if the file's name is a folder's.
void make_place_for_gguf(const std::filesystem::path& file);

// A GGUF file with the vocabulary inside, and for a model that sees pictures a second one beside
// it, files::pictures_file(file), whose matrices are Q8_0 where gguf_type names a mix. Vectors
// (norms, biases) are always float32, as GGUF readers expect; `read` may return them so. For a
// quantized file `read` returns each value in any floating-point type that holds it.
void export_gguf(const std::filesystem::path& file, models::Model& model,
                 const tokenizer::Tokenizer& tokenizer, const ParameterReader& read,
                 const ExportOptions& options);

// The same in a directory of its own, as gguf_name(directory), and what `options.add` puts beside
// it.
void export_gguf_directory(const std::filesystem::path& directory, models::Model& model,
                           const tokenizer::Tokenizer& tokenizer, const ParameterReader& read,
                           const ExportOptions& options);
std::string gguf_name(const std::filesystem::path& directory);  // "my-model" -> "my-model.gguf"

}  // namespace snug::engine
