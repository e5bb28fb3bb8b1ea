// A model as the rest of the program sees it: units, and the names its weights have in files.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "nn/kv_cache.h"
#include "nn/unit.h"

namespace snug::formats {
class GgufWriter;
}

namespace snug::models {

// What other folders may ask about any model.
struct Dimensions {
  int64_t vocabulary = 0;
  int64_t max_positions = 0;  // what the position scheme was made for
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t num_kv_heads_here = 0;  // fewer where ranks share the layers
  int64_t head_dim = 0;
};

// How a checkpoint lies on disk.
enum class Layout { HuggingFace, LitGpt, Gguf };

// Where a parameter lies in a file of some layout: rows [row_begin, row_begin + its rows) of
// `tensor`. GGUF keeps rotary rows pairwise, (0, 1), (2, 3), …, where we and Hugging Face split
// heads in halves: paired_heads > 0 is the number of heads whose rows must be reordered.
struct Placement {
  std::string tensor;
  int64_t row_begin = 0;
  int64_t paired_heads = 0;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual std::vector<nn::Unit*> units() = 0;
  virtual Dimensions dimensions() const = 0;
  virtual Placement placement(Layout layout, const nn::Parameter& parameter) const = 0;
  // The Hugging Face config.json of this model.
  virtual nlohmann::json hugging_face_config() const = 0;
  // LitGPT's model_config.yaml of this model.
  virtual std::string litgpt_config() const = 0;
  // What a GGUF file says of the model in its metadata, and its tensors that are no parameters.
  virtual void write_gguf_config(formats::GgufWriter& out) const = 0;
  virtual std::map<std::string, std::vector<float>> gguf_constants() const = 0;
  // Standard deviation of random initial weights.
  virtual double initializer_range() const = 0;
  // Makes what is computed from the config rather than loaded (rotary tables), on `device`, for
  // sequences of up to `max_seqlen` tokens.
  virtual void prepare(at::Device device, int64_t max_seqlen) = 0;

  // Floating-point operations of one training token in a document of `seqlen` tokens: forward and
  // backward of the products and of causal attention, without recomputation.
  double flops_per_token(double seqlen) const;

  std::vector<nn::Parameter*> parameters();
  int64_t num_parameters();
};

}  // namespace snug::models
