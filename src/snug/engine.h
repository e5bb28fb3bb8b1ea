// snug as a library: the public interface. A recipe becomes a model on a device with its memory
// techniques and its optimizer; batches are given as tensors, steps are taken one by one, and the
// ledger says where every byte is. One process, one device; for several, use the program.
//
//   snug::recipe::Recipe recipe = snug::read_recipe({"--model.config", "config.json"});
//   snug::Trainer trainer(recipe, {.longest = 128});
//   const snug::Step step = trainer.step(ids, labels);
//
// What is included here may be used too: nn::Objective (what training minimises) and exec::Policy
// (hooks around every unit's forward and backward) are meant to be derived from; add_technique()
// gives a policy an option, add_family() a config.json a model. Errors are exceptions of
// base/error.h: UserError for a wrong recipe or file, OutOfMemory for the budget.
//
// What holds for the whole process: num_threads of the newest trainer or prediction; numbers below
// 1e-38 become zero; libtorch's allocators are snug's, which count. A memory_budget is of what snug
// holds, and refuses nothing between its calls.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "core/memory/ledger.h"
#include "core/nn/head.h"
#include "core/nn/objective.h"
#include "core/optim/element_wise.h"
#include "engine/engine.h"
#include "engine/exec/policy.h"
#include "engine/techniques/behaviour.h"
#include "models/decoder/families.h"
#include "plan/predict.h"
#include "recipe/recipe.h"

namespace snug {

// A recipe from the options of `snug finetune`, in the order of a command line: {"--config",
// "recipe.yaml", "--optimizer.lr", "1e-4"}; `full` as in `snug finetune_full`, which trains all
// weights without being asked. Options about data have no effect here. Throws UserError.
recipe::Recipe read_recipe(const std::vector<std::string>& options, bool full = false);

// One optimizer step.
struct Step {
  double loss = 0;       // mean over the objective's terms; with cross-entropy its loss tokens
  double grad_norm = 0;  // before clipping
  int64_t tokens = 0;
  int64_t loss_tokens = 0;
  // Whether the weights changed: not where the gradients are no finite numbers, nor, with 16-mixed,
  // while the loss scale falls, nor where the objective counts no term (the loss is NaN then).
  bool updated = true;
  int64_t peak_bytes = 0;  // of the device in this step, without the caller's own tensors
};

struct TrainerOptions {
  int64_t longest = 512;  // tokens of a row, at most; where the model takes fewer, those
  // What training minimises; null: cross-entropy as the recipe has it. Another one replaces all of
  // that: label smoothing, z-loss and the balancing of experts too.
  std::shared_ptr<const nn::Objective> objective = nullptr;
  // Each makes a policy, called around every unit after the recipe's own techniques. A prediction
  // makes its own, whose tensors are on meta.
  std::vector<std::function<std::shared_ptr<exec::Policy>()>> policies = {};
  // Makes the optimizer instead of the recipe's: optim::portable<Formula>(), or one derived from
  // optim::Optimizer. It gets the recipe's rates and the like.
  optim::MakeOptimizer optimizer = {};
};

// What a step over train.global_batch_size samples would take, train.micro_batch_size at a time,
// whose documents have `tokens` tokens each, before a byte is allocated. Equal to such a step's
// peak_bytes of a trainer with these options and longest = `tokens` (tables of positions are as
// long; `options.longest` is not read). One at a time: it counts what the process allocates. Throws
// UserError for more tokens than the model takes, for several devices and for fit.
plan::Prediction predict(const recipe::Recipe& recipe, int64_t tokens,
                         const TrainerOptions& options = {});

// A technique with an option of its own, in two parts: what recipes know of it, and what it does
// in a run. engine::add_technique says more.
using engine::add_technique;

// A family of decoders as a row of what it has (models/decoder/families.h), before a model of it is
// opened.
using models::decoder::add_family;

// Numbers that an objective asks for (nn::BatchSpec), by their names: (documents), or (documents,
// width); of each target, given like labels, (documents, T), or (documents, T, width).
using Columns = std::map<std::string, at::Tensor>;

class Trainer {
 public:
  // Reads the recipe's checkpoint_dir, or draws random weights for its model.config. Allocates
  // weights, gradients' places and optimizer states. Throws UserError, OutOfMemory.
  explicit Trainer(const recipe::Recipe& recipe, const TrainerOptions& options = {});
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  // One step over a global batch: input_ids (S, T) integers; labels of the same shape, -100 where
  // a token is not to be learned, not shifted: a label is its token's own id. Runs micro-batches of
  // train.micro_batch_size samples. `lr`: of this step; none: the recipe's. With an objective over
  // several documents a sample, of k, the rows k·i to k·i + k - 1 are sample i's.
  Step step(const at::Tensor& input_ids, const at::Tensor& labels,
            std::optional<double> lr = std::nullopt, const Columns& columns = {});
  // The mean of what validation measures, without training.
  double evaluate(const at::Tensor& input_ids, const at::Tensor& labels,
                  const Columns& columns = {});

  // (rows) float32: the sum of the log-probabilities of each row's labels with the weights as they
  // are. Before training these are a preference's reference.
  at::Tensor log_probs(const at::Tensor& input_ids, const at::Tensor& labels);

  // Where every byte of the device is: now, at the peak, by category and by unit.
  const memory::Ledger& ledger() const;
  std::vector<nn::Unit*> units() const;
  // `value` is on the device, where no technique keeps the weight elsewhere between steps: kept()
  // is where it is.
  std::vector<nn::Parameter*> parameters() const;

  // Writes what was trained as a directory that `snug generate` and transformers load: the model,
  // or a PEFT adapter beside the recipe's checkpoint_dir. What began as a model.config has no
  // tokenizer, which generating and training again need, and an adapter of it no base. Replaces
  // nothing: the folder must not exist.
  void save(const std::filesystem::path& folder);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace snug
