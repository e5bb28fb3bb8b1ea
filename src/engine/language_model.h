// A checkpoint opened for inference: weights, executor, tokenizer, and adapters among which one can
// switch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/nn/adapter.h"
#include "core/nn/precision.h"
#include "engine/exec/executor.h"
#include "models/family.h"
#include "recipe/recipe.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::engine {

// An adapter in the device's memory.
struct LoadedAdapter {
  std::string name;                                            // the folder as it was given
  std::map<std::string, std::shared_ptr<nn::Adapter>> layers;  // by the layer's name
};

struct LanguageModel {
  std::filesystem::path path;  // the checkpoint's; with an adapter, the base's
  std::unique_ptr<models::Model> model;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::unique_ptr<exec::Executor> executor;
  nn::Precision precision;
  std::vector<LoadedAdapter> adapters;

  // Switches the model to this adapter.
  void use(const LoadedAdapter& adapter) const;
};

struct LanguageModelOptions {
  std::string precision = "bf16-true";
  std::string quantize = "auto";              // "bnb.nf4" …; none; auto: as the base is stored
  int64_t max_seqlen = 0;                     // tokens
  std::vector<std::string> adapters;          // folders
  const recipe::DataOptions* data = nullptr;  // whose chat_template and eos_token count, if any
  // Whether the caller knows what to do with a model that scores documents and writes no text.
  bool takes_scores = false;
};

// The precision with weights in the type that this one computes in: "bf16-true" of "bf16-mixed".
std::string plain_precision(const std::string& precision);

// Loads the whole model onto `device` for sequences of up to max_seqlen tokens; 0: the model's
// maximum. `path` may be an adapter's folder: then its base is loaded and it becomes the first
// adapter. The first adapter is in use.
LanguageModel open_language_model(const std::filesystem::path& path, at::Device device,
                                  const LanguageModelOptions& options);

}  // namespace snug::engine
