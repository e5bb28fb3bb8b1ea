// The interface of a model: its units, its dimensions, and the names of its weights in files.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/nn/kv_cache.h"
#include "core/nn/unit.h"
#include "data/reading.h"
#include "models/whole_model.h"

namespace snug::files {
class GgufWriter;
}

namespace snug::models {

// Sizes that every family reports.
struct Dimensions {
  int64_t vocabulary = 0;
  int64_t max_positions = 0;  // longest sequence that the position encoding was trained for
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
};

// A checkpoint's layout on disk.
enum class Layout { HuggingFace, LitGpt, Gguf };

// A file's other order of a parameter's rows. Ours, seen as (groups, a, b, rows of one), are there
// (groups, b, a, …): rotary rows in pairs (0, 1), (2, 3), … where our heads are two halves, or all
// heads' queries first where each of our heads has its q, k and v. Where a key has several queries,
// the `first` of its b count as one: the file has a · first of them, then a of each of the others.
struct RowOrder {
  int64_t groups = 0;  // 0: the order is ours
  int64_t a = 1;
  int64_t b = 1;
  int64_t first = 1;

  bool differs() const { return groups > 0; }
};

// A parameter's place in a file of some layout: rows [row_begin, row_begin + its rows) of `tensor`.
struct Placement {
  std::string tensor;
  std::string second_half;  // a tensor of its own with the lower half of the rows; else empty
  int64_t row_begin = 0;
  RowOrder order;
  bool transposed = false;  // the file has (in, out) for our (out, in)
  double added = 0;         // the file has our values plus this, in float32
  // The tensor has as many parameters stacked in a first dimension of its own, of which this is
  // number `index`; 0: none.
  int64_t stacked = 0;
  int64_t index = 0;
  std::vector<int64_t> shape;  // shape in the file if it has more dimensions; else empty
};

// What a mixture of experts says of its router.
struct Routing {
  int64_t num_experts = 0;  // of a block; 0: the model has none
  int64_t num_blocks = 0;   // with or without experts
  int64_t per_token = 0;
  double balance = 0;        // weight of the loss that balances them, where the config asks for it
  bool may_balance = false;  // whether transformers has that loss for the family
};

// Attention heads of one kind.
struct HeadCount {
  std::string what;
  int64_t count = 0;
  bool is_split = true;  // else something that tensor parallelism does not split, whose count is 1
};

// Units that a recipe freezes or trains together: "language", "vision", "qformer", "projection".
struct ModelPart {
  std::string name;
  std::vector<nn::Unit*> units;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual std::vector<nn::Unit*> units() = 0;
  virtual Dimensions dimensions() const = 0;
  virtual Routing routing() const { return {}; }
  virtual Placement placement(Layout layout, const nn::Parameter& parameter) const = 0;
  // Whether Hugging Face's files of this model may have a tensor that nothing reads.
  virtual bool may_leave_out(const std::string& /*tensor*/) const { return false; }
  // The Hugging Face config.json of this model.
  virtual nlohmann::json hugging_face_config() const = 0;
  // LitGPT's model_config.yaml of this model. Throws UserError if LitGPT does not have this family.
  virtual std::string litgpt_config() const;
  // Writes a GGUF file's metadata, and its tensors that are not parameters. Throws UserError if
  // snug does not write GGUF for this family.
  virtual void write_gguf_config(files::GgufWriter& out) const;
  // The same of the second file of a model that sees pictures, for tensors that belong there
  // (files::is_pictures_tensor).
  virtual void write_gguf_pictures_config(files::GgufWriter& out) const;
  virtual std::map<std::string, std::vector<float>> gguf_constants() const { return {}; }
  // Standard deviation of random initial weights.
  virtual double initializer_range() const = 0;
  // Makes tables that are computed from the config (rotary embeddings) on `device`, for sequences
  // of up to `max_seqlen` tokens.
  virtual void prepare(at::Device device, int64_t max_seqlen) = 0;

  // How tensor parallelism splits the weights; layers that are not named are whole everywhere.
  virtual std::vector<nn::SplitRow> split() const = 0;
  virtual std::vector<HeadCount> head_counts() const;

  virtual data::Reading reads() const { return {}; }
  // Of a model whose head scores whole documents: what for, by the head's row (score_head.h).
  virtual std::vector<std::string> labels() const { return {}; }
  virtual std::vector<ModelPart> parts() { return {{"language", units()}}; }
  // Overrides the config's dropout probabilities. No effect if the family has no dropout.
  virtual void set_dropout(double /*probability*/) {}

  // Floating-point operations per training token in a document of `seqlen` tokens: forward and
  // backward of products and attention, with the document's `pictures` (tiles each count as one)
  // and source, without recomputation.
  virtual double flops_per_token(double seqlen, double pictures) const;

  std::vector<nn::Parameter*> parameters();
  int64_t num_parameters();

  // The model of several parts of which this is the language model; null for others.
  const WholeModel* whole() const { return whole_.get(); }
  void set_whole(std::shared_ptr<const WholeModel> whole) { whole_ = std::move(whole); }
  void take_whole(const Model& from) { whole_ = from.whole_; }

 private:
  std::shared_ptr<const WholeModel> whole_;
};

}  // namespace snug::models
