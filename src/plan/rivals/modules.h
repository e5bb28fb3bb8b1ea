// The weights of an eager PyTorch model and the layers that read them: in which type, what autocast
// copies, which of them train, which adapters and codes of few bits stand beside or in place of
// them, and what DDP and FSDP make of them. Only shapes matter: it runs on meta.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/nn/precision.h"
#include "plan/rivals/fully_shard.h"
#include "plan/rivals/sharding.h"
#include "plan/rivals/zero_weights.h"
#include "recipe/recipe.h"

namespace snug::plan::rivals {

// Whose layers: LitGPT's own, with bitsandbytes as Lightning puts it in, or PyTorch's and
// transformers', with peft and bitsandbytes.
enum class Library { LitGpt, Transformers };

// An adapter's: any, since only shapes matter.
inline constexpr double kScaling = 0.5;

class Modules {
 public:
  struct Options {
    Library library = Library::Transformers;
    nn::Precision precision;  // parameters, and compute: the type of products under autocast
    // What weights were before they were quantized, and are when they are dequantized.
    at::ScalarType loaded = at::kFloat;
    Sharding sharding = Sharding::None;
    int64_t ranks = 1;
    // The type in which fully sharded weights or DeepSpeed's are stored, where it is another than
    // that in which they are gathered.
    at::ScalarType stored = at::ScalarType::Undefined;
    recipe::LoraOptions lora = {};  // enabled: nothing but adapters trains
    std::string quantize = {};      // empty: none
    bool on_cpu = false;            // operators as a CPU has them
    bool liger = false;             // Liger's kernels in place of some. Of decoders.
    recipe::DeepSpeed deepspeed = {};
    bool weights_on_host = false;  // offload_param of DeepSpeed's stage 3, FSDP2's CPU offload
  };
  struct Linear {
    int64_t in = 0, out = 0;
    at::Tensor *weight = nullptr, *bias = nullptr;
    bool quantized = false;
    // Quantized in 4 bits: one a block of 64; of 256 of those if they are too. In 8: one a row.
    at::Tensor absmax, scales;
    // Adapter: (parts * r, in), (sum of parts, r), and the rows of b that belong to each part.
    at::Tensor *a = nullptr, *b = nullptr;
    at::Tensor* magnitude = nullptr;  // of DoRA
    std::vector<int64_t> parts;
  };
  // The order of a root mean square norm's steps: T5's norms x in its own type; the others in
  // float32, where Llama's scales what has been cast back, and Gemma's and OLMo's (LitGPT's too)
  // cast back what has been scaled. Or all is Liger's kernel, whose gradient may be in place.
  enum class RmsForm { T5, ScaledLast, CastLast, Liger, LigerInPlace };
  struct Norm {
    at::Tensor *weight = nullptr, *bias = nullptr;  // no bias: the root mean square's
    RmsForm form = RmsForm::T5;
  };

  explicit Modules(Options options);

  // Weights made from here on belong to a new FSDP unit; its index, 0 where there are none.
  size_t begin_unit();
  void resume_unit(size_t unit) { unit_ = unit; }
  // … to the rest again, which is unit 0.
  void end_unit() { unit_ = 0; }
  at::Tensor* weight(std::vector<int64_t> sizes);
  // Has a gradient, though the optimizer does not know it: that stays.
  at::Tensor* forgotten_weight(std::vector<int64_t> sizes);
  // With adapters on these parts of its outputs. `may_quantize`: bitsandbytes takes it.
  Linear linear(int64_t in, int64_t out, bool bias, std::vector<int64_t> adapted,
                bool may_quantize = true);
  // `name` is what lora_target_modules is compared with.
  Linear linear(int64_t in, int64_t out, bool bias, const char* name, bool may_quantize = true);
  Norm layer_norm(int64_t width);
  Norm rms_norm(int64_t width, RmsForm form = RmsForm::T5) {
    return {.weight = weight({width}), .form = form};
  }
  // After the last weight: FSDP takes them apart, DDP makes its buckets.
  void share();

  // With peft's adapter, if it has one.
  at::Tensor run(const Linear& layer, const at::Tensor& x);
  // Without any.
  at::Tensor product(const Linear& layer, const at::Tensor& x);
  at::Tensor run(const Norm& norm, const at::Tensor& x) const;
  // run(x) as a module of its own, which has these weights and reads x.
  template <class Run>
  at::Tensor as_module(const ZeroWeights::Slots& weights, const at::Tensor& x, Run run) const {
    if (zero_weights_ == nullptr) return run(x);
    return zero_weights_->leave(weights, run(zero_weights_->enter(weights, x)));
  }
  // x in the type of products, where autocast makes it so.
  at::Tensor cast(const at::Tensor& x) const;
  // The copies of weights that train are kept.
  at::Tensor cast_weight(const at::Tensor& weight);
  // x, some of whose elements are zero, as an adapter reads it.
  at::Tensor dropped(const at::Tensor& x) const;
  at::TensorOptions parameters() const;
  bool is_sharded() const { return is_fsdp(options_.sharding); }
  bool autocast() const { return options_.precision.parameters != options_.precision.compute; }
  bool quantized() const { return !options_.quantize.empty(); }
  bool is_8bit() const { return options_.quantize.starts_with("bnb.int8"); }

  // FSDP's flat weights of a unit, and those of all units.
  FlatWeights& flat(size_t unit) { return *flats_[unit]; }
  const std::vector<std::unique_ptr<FlatWeights>>& flats() const { return flats_; }
  // Null where weights are not fully sharded.
  FullyShard* fully_shard() const { return fully_shard_.get(); }
  // Null unless they are DeepSpeed's of stage 3.
  ZeroWeights* zero_weights() const { return zero_weights_.get(); }
  // What the optimizer trains; with FSDP this rank's parts.
  const std::vector<at::Tensor>& trained() const { return trained_; }
  void drop_gradients();
  // Autocast keeps its casts of weights until the forward is over.
  void drop_weight_casts() { casts_.clear(); }

 private:
  at::ScalarType compute() const { return options_.precision.compute; }
  at::Tensor* keep(at::Tensor weight, bool trains);
  void make_codes(Linear& layer);
  void share_fully();
  // The weight as it is before it is quantized.
  at::Tensor dequantized(const Linear& layer) const;
  at::Tensor low_rank(const Linear& layer, const at::Tensor& x);
  at::Tensor normed(const Norm& norm, const at::Tensor& x) const;
  at::Tensor dora(const Linear& layer, const at::Tensor& x, const at::Tensor& out);

  Options options_;
  std::deque<at::Tensor> weights_;  // whose places stay
  std::vector<std::vector<at::Tensor*>> units_{1};
  size_t unit_ = 0;
  std::vector<std::string> targets_;
  std::vector<at::Tensor> trained_;
  std::vector<at::Tensor> buckets_;
  std::vector<std::pair<at::Tensor, at::Tensor>> casts_;  // weight, its 16-bit copy
  std::vector<std::unique_ptr<FlatWeights>> flats_;
  std::unique_ptr<FullyShard> fully_shard_;
  std::unique_ptr<ZeroWeights> zero_weights_;
};

// What the loop that trains an eager PyTorch model asks of it, and what models share: units of an
// FSDP policy, checkpointed blocks, dropout, heads of attention.
class Model {
 public:
  struct Options {
    Modules::Options weights;
    bool checkpointing = false;  // of each block
    int64_t batch = 1;           // samples of a micro-batch
    int64_t tokens = 1;          // of each, padded
    int64_t labels = 0;          // of each, where a decoder has a length of its own
    bool padded = false;         // of a decoder: some samples are shorter, so that there is a mask
    bool keeps_logits = false;   // of a decoder: the loop holds what it returns
  };

  explicit Model(const Options& options) : options_(options), modules_(options.weights) {}
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Inputs that the loop makes, before anything else of a micro-batch.
  virtual void make_inputs() {}
  // The loss of one micro-batch. What a training_step's variables hold lives until drop_outputs()
  // or the next one's.
  at::Tensor forward();
  void drop_outputs() { outputs_.clear(); }
  // Around the backward of each micro-batch.
  void begin_backward(bool is_last);
  void end_backward();
  Modules& modules() { return modules_; }

 protected:
  virtual at::Tensor loss() = 0;

  // module(inputs) as an FSDP unit, checkpointed where that is wanted.
  at::Tensor run_block(size_t unit, const std::string& name, std::vector<at::Tensor> inputs,
                       TensorModule module);
  // Block after block: each one's result takes the place of x, and `run(block, given)` gets that
  // and the others.
  template <class Block, class Run>
  at::Tensor run_blocks(const std::string& name, const std::vector<Block>& blocks, at::Tensor x,
                        const std::vector<at::Tensor>& others, Run run) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      std::vector<at::Tensor> inputs{std::move(x)};
      inputs.insert(inputs.end(), others.begin(), others.end());
      x = run_block(blocks[i].unit, name + " " + std::to_string(i), inputs,
                    [&block = blocks[i], run](const auto& given) { return run(block, given); });
    }
    return x;
  }
  // Around the forward of what is fully sharded.
  void enter(size_t unit);
  at::Tensor entered(size_t unit, const at::Tensor& x);
  void leave(size_t unit, const at::Tensor& output, FullyShard::Stays stays);
  // The last block has run, and with it the last FSDP unit but for the rest.
  void finish_gathers();
  // Where the backward of a unit begins: when its output's gradient is there.
  static void mark_unit(const at::Tensor& output, int32_t unit);
  at::Tensor run(const Modules::Linear& layer, const at::Tensor& x) {
    return modules_.run(layer, x);
  }
  at::Tensor run(const Modules::Norm& norm, const at::Tensor& x) { return modules_.run(norm, x); }
  static at::Tensor drop(const at::Tensor& x, double probability);
  // (B, T, H * D) -> (B, H, T, D) and back.
  static at::Tensor split_heads(const at::Tensor& x, int64_t heads);
  static at::Tensor join_heads(const at::Tensor& x);
  // Rotary positions: x (B, H, T, D), cos and sin (1, 1, T, D).
  static at::Tensor rotated(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);
  // GELU by tanh, written out in Python: an operator for each step.
  at::Tensor tanh_gelu(const at::Tensor& x) const;
  // A number of a Hugging Face config.
  static int64_t number(const nlohmann::json& config, const char* key, int64_t fallback);
  static at::Tensor new_ids(int64_t rows, int64_t columns);

  Options options_;
  Modules modules_;
  std::vector<at::Tensor> outputs_;

 private:
  std::vector<size_t> gathered_;  // FSDP units that are there, in order
  std::vector<size_t> order_;     // of units in the forward
};

}  // namespace snug::plan::rivals
