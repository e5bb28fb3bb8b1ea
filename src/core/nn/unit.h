// The building block of every model: a group of layers, such as a transformer block, that is run,
// checkpointed, sharded, offloaded and placed as a whole. A model is a list of units; the executor
// runs them in order and then in reverse. A unit knows nothing of training, devices or ranks;
// policies know nothing of what is inside a unit.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/kernels/random_key.h"
#include "core/nn/kv_cache.h"
#include "core/nn/parameter.h"
#include "core/ops/attention/context_attention.h"
#include "core/ops/attention/forked_attention.h"
#include "core/ops/device/upload.h"
#include "core/ops/loss/counted_rows.h"
#include "core/ops/routing.h"

namespace snug::nn {

// The encoder's input: M tokens, for each of the batch's S documents one sequence, packed one after
// another.
struct Source {
  at::Tensor input_ids;     // (M) int32
  at::Tensor positions;     // (M) int32, from 0 in each document
  ops::Borders cu_seqlens;  // (S+1) int32
  int64_t max_seqlen = 0;
};

// One micro-batch on the device: S documents packed one after another, N tokens in all. In a model
// with an encoder these are the decoder's tokens.
struct Batch {
  at::Tensor input_ids;  // (N) int32
  at::Tensor targets;    // (N) int32: the next token, or ignore_index
  int64_t ignore_index = -100;
  ops::CountedRows counted;  // rows whose target is not ignore_index
  at::Tensor positions;      // (N) int32, from 0 in each document
  ops::Borders cu_seqlens;   // (S+1) int32
  int64_t max_seqlen = 0;
  int64_t loss_tokens = 0;       // targets other than ignore_index
  ops::RealRows real;            // which rows are no padding, where the model asks
  std::optional<Source> source;  // none without an encoder, or once a generation has its output
  // One picture per document, (S, height, width, 3) uint8; undefined without pictures, or once a
  // generation has processed them.
  at::Tensor pixels;
  // (S·Q) int32: the rows of input_ids (with an encoder: of source->input_ids) that the pictures'
  // features replace.
  at::Tensor picture_rows;
  // What the objective asks for (core/nn/objective.h: BatchSpec), in its order, float32.
  std::vector<at::Tensor> columns;
  // (1) float32: what the objective's estimate() found before the step; undefined without one.
  at::Tensor estimate;
  // (N) float32: noise on each token's embedding while training (nn::add_noise); undefined: none.
  at::Tensor noise;
  // Set with context parallelism: N then counts this rank's tokens, and cu_seqlens is undefined.
  // Only attention reads other ranks' tokens.
  std::optional<ops::ContextShare> context;
  // Set where documents share their beginning: cu_seqlens then has the rows of what follows it.
  std::optional<ops::Forks> forks;
  // With expert parallelism: the tokens of the rank that has most; 0: all ranks have the same.
  int64_t most_tokens = 0;
  KvCache* cache = nullptr;             // generation: attention appends to it and reads it
  std::shared_ptr<ops::Upload> upload;  // the copy of these tensors, if any: owns its source
};

// The one list of a batch's tensors: visit(tensor) for each, defined or not, with its own type,
// at::Tensor or ops::Borders.
template <class BatchOrConst, class Visit>
void for_each_tensor(BatchOrConst& batch, const Visit& visit) {
  for (auto* tensor : {&batch.input_ids, &batch.targets, &batch.counted.rows,
                       &batch.counted.targets, &batch.positions, &batch.real.on_device,
                       &batch.pixels, &batch.picture_rows, &batch.estimate, &batch.noise})
    visit(*tensor);
  for (auto& column : batch.columns) visit(column);
  visit(batch.cu_seqlens);
  if (batch.source) {
    visit(batch.source->input_ids);
    visit(batch.source->positions);
    visit(batch.source->cu_seqlens);
  }
  if (batch.forks) visit(batch.forks->kv_cu_seqlens);
  if (!batch.context) return;
  for (auto& chunk : batch.context->chunks) {
    visit(chunk.cu_seqlens);
    visit(chunk.kv_cu_seqlens);
  }
}

class Objective;

// Tokens that went to each of a block's experts, by the block's number. What a technique computes
// again counts again, so that only shares within a block mean something.
using RoutedTokens = std::map<int64_t, std::vector<int64_t>>;

// What the last unit returns.
enum class Output { Objective, LastLogits };

// The options of one pass.
struct Pass {
  Output output = Output::Objective;
  at::ScalarType compute = at::kFloat;  // of activations and products
  double gradient_scale = 1.0;  // the gradient of (scale * objective) is what backward computes
  const Objective* objective = nullptr;  // null: plain cross-entropy (core/nn/objective.h)
  std::optional<uint64_t> dropout_key;   // seed for this micro-batch; none: no dropout
  at::Tensor recorded_key;         // (1) int64 on the device: read instead by work that is recorded
  kernels::RowPlaces rows;         // row numbers of the tokens for dropout's random numbers
  RoutedTokens* routed = nullptr;  // where experts count their tokens; null: nowhere
  bool last_micro_batch = true;  // of the optimizer step: gradients are complete after its backward
};

// The name of the last unit's output in training and validation.
inline constexpr const char* kObjective = "objective";

// The key of the mask that is drawn at `site` in a pass that has pass.dropout_key.
kernels::MaskKey mask_key(const Pass& pass, const std::string& site);

// The tensors passed from unit to unit, by name. Decoders only use "hidden"; the last unit returns
// "objective" (1) or "logits" (S, V). Names for encoders and pictures: docs/decisions/0008.
class State {
 public:
  const at::Tensor& at(const std::string& name) const;
  bool has(const std::string& name) const;
  void set(std::string name, at::Tensor tensor);
  // Takes it out.
  at::Tensor take(const std::string& name);
  // Whether a tensor of the state shares this tensor's storage.
  bool shares_storage(const at::Tensor& tensor) const;
  std::vector<std::pair<std::string, at::Tensor>>& entries() { return entries_; }
  const std::vector<std::pair<std::string, at::Tensor>>& entries() const { return entries_; }

 private:
  std::vector<std::pair<std::string, at::Tensor>> entries_;
};

class Linear;

// What a unit is in its model. Recipes count blocks: of all stacks, in the order of the units.
enum class UnitKind { Embedding, Block, Norm, Projection, Head };

class Unit {
 public:
  Unit(std::string name, UnitKind kind) : name_(std::move(name)), kind_(kind) {}
  virtual ~Unit() = default;
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  // Must give the same result when run twice: techniques recompute it. `input` is the previous
  // unit's output, empty for the first unit.
  virtual State forward(const State& input, const Batch& batch, const Pass& pass) = 0;

  // The parameters this unit owns. A tied weight is owned once and borrowed elsewhere.
  virtual std::vector<Parameter*> parameters() = 0;
  // The parameters it reads but another unit owns.
  virtual std::vector<Parameter*> borrowed() { return {}; }
  // All parameters that its forward and backward read.
  std::vector<Parameter*> uses() {
    std::vector<Parameter*> all = parameters();
    for (Parameter* parameter : borrowed()) all.push_back(parameter);
    return all;
  }

  // The unit's linear layers: where adapters go, and which weights may be quantized.
  virtual std::vector<Linear*> linears() { return {}; }
  // The parameters of each expert, if the unit has a mixture of them.
  virtual std::vector<std::vector<Parameter*>> experts() { return {}; }

  const std::string& name() const { return name_; }
  UnitKind kind() const { return kind_; }

 private:
  std::string name_;
  UnitKind kind_;
};

}  // namespace snug::nn
