// The model that training starts from: opens it, loads its weights into an engine, again after
// training for comparison, and writes the trained model.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "core/nn/precision.h"
#include "engine/engine.h"
#include "engine/export/export.h"
#include "models/family.h"
#include "models/model.h"
#include "recipe/recipe.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::train {

// Collects the weights of pipeline stages at the first one, which writes the trained model.
enum class Gathered { All, Trained };

// The complete values of one unit's parameters at a time, all or only those that train. Used by all
// ranks in the same way.
class GatheredUnit {
 public:
  GatheredUnit(models::Model& model, const engine::Engine& engine, Gathered which);

  // `unit`: of the model. After open(), rank 0 can read the values.
  void open(size_t unit);
  void close(size_t unit);
  // On the host, in the type that is written: for whole models the exported type, for trained
  // weights the optimizer's.
  at::Tensor read(const nn::Parameter& parameter) const;

 private:
  size_t index_here(nn::Unit* unit) const;
  void bring(const nn::Parameter& parameter, int64_t from);
  void keep_on_host(const nn::Parameter& parameter);
  // Whether it reads, or sends to who reads.
  bool is_first_of_stage() const;

  const engine::Engine& engine_;
  Gathered which_;
  at::ScalarType sent_type_;      // between stages
  std::vector<nn::Unit*> units_;  // of the model
  std::unordered_map<const nn::Parameter*, at::Tensor> values_;
};

class BaseModel {
 public:
  // Reads headers and vocabulary and adds adapters, without allocating weights. `recipe` must
  // outlive this. Throws UserError.
  explicit BaseModel(const recipe::Recipe& recipe);

  models::Model& model() const { return *checkpoint_.model; }
  // Null for random weights on synthetic samples, which involve no text.
  const tokenizer::Tokenizer* tokenizer() const { return tokenizer_.get(); }

  // Whether every weight trains: false with adapters, or if model.train_parts leaves parts out.
  bool trains_whole() const;

  // Loads the initial weights, of the model and its adapters, into an engine's memory.
  void load(const engine::Engine& engine);
  // Unmaps the weights' files.
  void close() {
    checkpoint_.tensors.reset();
    is_closed_ = true;
  }

  // After training, before anything is written, which may replace the files that training started
  // from; does nothing if they are open. Warns if they cannot be opened again.
  void reopen();
  // Whether load() can be called: weights are open, or random ones are drawn.
  bool can_load() const { return is_random() || checkpoint_.tensors != nullptr; }

  // Writes the trained model or adapter as a directory in Hugging Face's layout. Called by all
  // ranks that share the model; the first one writes.
  // `add` writes more files into it.
  void write_trained(const std::filesystem::path& folder, const engine::Engine& engine,
                     const engine::AddFiles& add = {}) const;
  // Its size on disk.
  int64_t trained_bytes(const engine::Engine& engine) const;

 private:
  checkpoint::Adapter adapter_shapes(at::ScalarType type) const;
  engine::ExportOptions export_options(const engine::Engine& engine) const;
  void write_model(const std::filesystem::path& folder, const engine::Engine& engine,
                   const engine::AddFiles& add) const;
  void write_adapter(const std::filesystem::path& folder, const engine::Engine& engine,
                     const engine::AddFiles& add) const;
  bool is_random() const { return !recipe_.model.config.empty(); }
  // Reads initial weights, as float32 on the host.
  engine::ParameterReader reader() const;
  // Calls `write` with a reader of the current weights, on the rank that writes.
  void with_values(const engine::Engine& engine, Gathered which,
                   const std::function<void(const engine::ParameterReader&)>& write) const;

  const recipe::Recipe& recipe_;
  models::Checkpoint checkpoint_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  bool is_closed_ = false;
};

// For a resumed run: throws UserError if what it trained under the recipe `before` (from run.json)
// would mean something else under `recipe` although shapes are the same, such as an adapter with
// another alpha. The message names `checkpoint`.
void check_same_meaning(const recipe::Recipe& recipe, const nlohmann::json& before,
                        const std::filesystem::path& checkpoint);

}  // namespace snug::train
