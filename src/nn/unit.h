// The building block of every model: a stretch that is run, checkpointed, sharded, offloaded and
// placed as a whole. A model is a list of units; the executor runs them in order and then in
// reverse. A unit knows nothing of training, devices or ranks; techniques know nothing of its
// inside.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nn/kv_cache.h"
#include "nn/parameter.h"
#include "ops/context_attention.h"
#include "ops/counted_rows.h"
#include "ops/upload.h"

namespace snug::nn {

// What an encoder reads for each of a batch's S documents, packed one after another, M tokens.
struct Source {
  at::Tensor input_ids;     // (M) int32
  at::Tensor positions;     // (M) int32, from 0 in each document
  ops::Borders cu_seqlens;  // (S+1) int32
  int64_t max_seqlen = 0;
};

// One micro-batch on the device: S documents packed one after another, N tokens in all. With an
// encoder these are the decoder's.
struct Batch {
  at::Tensor input_ids;      // (N) int32
  at::Tensor targets;        // (N) int32: the token that should follow, or ignore_index
  ops::CountedRows counted;  // where that is not ignore_index
  at::Tensor positions;      // (N) int32, from 0 in each document
  ops::Borders cu_seqlens;   // (S+1) int32
  int64_t max_seqlen = 0;
  int64_t loss_tokens = 0;  // targets that count
  std::optional<Source>
      source;  // none: there is no encoder, or a generation has its output already
  // One picture a document, (S, height, width, 3) uint8; undefined: there is none, or a generation
  // has seen it already.
  at::Tensor pixels;
  // (S·Q) int32: the rows of the tokens, of the source's if there is one, that pictures' features
  // stand in.
  at::Tensor picture_rows;
  // Where ranks share the tokens (context parallelism): N are then this rank's, and cu_seqlens is
  // undefined. Only attention looks beyond them.
  std::optional<ops::ContextShare> context;
  KvCache* cache = nullptr;             // generation: append to it and attend to what it holds
  std::shared_ptr<ops::Upload> upload;  // that brought these tensors, if they were
};

// What the last unit is to return.
enum class Output { Loss, LastLogits };

// What one pass needs besides tensors.
struct Pass {
  Output output = Output::Loss;
  at::ScalarType compute = at::kFloat;  // of activations and products
  double gradient_scale = 1.0;  // the gradient of (scale * summed loss) is what backward computes
  int64_t ignore_index = -100;
  double label_smoothing = 0;  // share of the target's probability given to all tokens alike
  double z_loss = 0;           // weight of log(sum(exp(logits)))^2, added to the loss
  std::optional<uint64_t> dropout_key;  // of this micro-batch; none: nothing is dropped
  kernels::cpu::RowPlaces rows;         // what dropout numbers the batch's tokens as
  bool last_micro_batch = true;  // of an optimizer step: gradients are whole after its backward
};

// What flows from unit to unit: a few named tensors. Decoders need "hidden" only; the last unit
// returns "loss" (1) or "logits" (S, V). Encoders and pictures add more names: decisions/0008.
class State {
 public:
  const at::Tensor& at(const std::string& name) const;
  bool has(const std::string& name) const;
  void set(std::string name, at::Tensor tensor);
  // Whether a tensor of the state is a view of this one's memory.
  bool shares_storage(const at::Tensor& tensor) const;
  std::vector<std::pair<std::string, at::Tensor>>& entries() { return entries_; }
  const std::vector<std::pair<std::string, at::Tensor>>& entries() const { return entries_; }

 private:
  std::vector<std::pair<std::string, at::Tensor>> entries_;
};

class Linear;

class Unit {
 public:
  explicit Unit(std::string name) : name_(std::move(name)) {}
  virtual ~Unit() = default;
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  // Pure in its inputs: running it twice gives the same. The input state is the previous unit's
  // output; empty for the first.
  virtual State forward(const State& input, const Batch& batch, const Pass& pass) = 0;

  // The parameters this unit owns. A tied weight is owned once and borrowed elsewhere.
  virtual std::vector<Parameter*> parameters() = 0;
  // Those it reads but another unit owns.
  virtual std::vector<Parameter*> borrowed() { return {}; }
  // All that its forward and backward read.
  std::vector<Parameter*> uses() {
    std::vector<Parameter*> all = parameters();
    for (Parameter* parameter : borrowed()) all.push_back(parameter);
    return all;
  }

  // The products with weights that this unit runs: where adapters go, and what may be quantized.
  virtual std::vector<Linear*> linears() { return {}; }

  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

}  // namespace snug::nn
