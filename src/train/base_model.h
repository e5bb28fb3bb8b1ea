// The model that training starts from: opened, its weights read into an engine, looked at again
// after training, and what training made of it written to a folder.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/nn/precision.h"
#include "engine/engine.h"
#include "engine/export/export.h"
#include "models/family.h"
#include "recipe/recipe.h"
#include "text/tokenizer/tokenizer.h"
#include "train/stage_values.h"

namespace snug::train {

class BaseModel {
 public:
  // Reads headers and the vocabulary; adapters are in place, nothing is allocated. `recipe` must
  // outlive this. Throws UserError.
  explicit BaseModel(const recipe::Recipe& recipe);

  models::Model& model() const { return *checkpoint_.model; }
  // Null where random weights learn synthetic samples: neither has anything to do with text.
  const tokenizer::Tokenizer* tokenizer() const { return tokenizer_.get(); }

  // Whether every weight trains: not with adapters, nor where model.train_parts leaves parts out.
  bool trains_whole() const;

  // The weights that training starts from, and the adapters', into an engine's memory.
  void load(const engine::Engine& engine);
  // The file's pages are no longer needed.
  void close() { checkpoint_.tensors.reset(); }

  // For the time after training: before anything is written, which may take the place of what
  // training started from. Warns where it can't be opened again.
  void reopen();
  // Whether load() can be called: there are weights to read, or random ones are drawn.
  bool can_load() const { return is_random() || checkpoint_.tensors != nullptr; }

  // What training made, as a directory that others load: the whole model, or an adapter. Called by
  // all processes that share the model; the first one writes.
  void write_trained(const std::filesystem::path& folder, const engine::Engine& engine) const;
  // What that takes on disk.
  int64_t trained_bytes(const engine::Engine& engine) const;

 private:
  checkpoint::Adapter adapter_shapes(at::ScalarType type) const;
  engine::ExportOptions export_options(const engine::Engine& engine) const;
  void write_model(const std::filesystem::path& folder, const engine::Engine& engine) const;
  void write_adapter(const std::filesystem::path& folder, const engine::Engine& engine) const;
  bool is_random() const { return !recipe_.model.config.empty(); }
  // A weight as training found it, float32 on the host.
  engine::ParameterReader reader() const;
  // Runs `write` with a reader of the weights as they are now, on the rank that writes.
  void with_values(const engine::Engine& engine, Gathered which,
                   const std::function<void(const engine::ParameterReader&)>& write) const;

  const recipe::Recipe& recipe_;
  models::Checkpoint checkpoint_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
};

// A run that goes on: throws UserError where what it trained, by the recipe `before` as in
// run.json, would mean something else under `recipe` although it has the same shapes, such as an
// adapter with another alpha. `checkpoint` is named.
void check_same_meaning(const recipe::Recipe& recipe, const nlohmann::json& before,
                        const std::filesystem::path& checkpoint);

}  // namespace snug::train
