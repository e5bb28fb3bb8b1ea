// Decoders as units: token embedding, blocks, and norm + head + loss. What they compute is in
// Config.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/nn/functions.h"
#include "core/nn/head.h"
#include "core/nn/linear.h"
#include "models/decoder/config.h"
#include "models/decoder/experts.h"
#include "models/decoder/layer_inputs.h"
#include "models/decoder/mixer.h"
#include "models/decoder/rope.h"
#include "models/model.h"
#include "models/score_head.h"

namespace snug::models::decoder {

// Shapes: N tokens, D hidden_size, H heads, K key-value heads, d head_dim, F intermediate_size,
// V vocab_size; c rows of hidden states as core/nn/functions.h says.

// An RMSNorm or a layer norm, as the family has them.
class Norm {
 public:
  Norm(const Config& config, const std::string& name);
  at::Tensor forward(const at::Tensor& x, ops::NormFeeds feeds = ops::NormFeeds::Product) const;
  std::pair<at::Tensor, at::Tensor> forward_beside(const at::Tensor& x) const;
  std::pair<at::Tensor, at::Tensor> forward_sum(const at::Tensor& x,
                                                const at::Tensor& residual) const;
  void list(std::vector<nn::Parameter*>& parameters);

 private:
  std::variant<nn::RmsNorm, nn::LayerNorm> norm_;
};

class Embedding final : public nn::Unit {
 public:
  explicit Embedding(const Config& config);
  nn::State forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;
  std::vector<nn::Parameter*> parameters() override { return {&weight_}; }
  nn::Parameter& weight() { return weight_; }

 private:
  double scale_in(at::ScalarType type) const;

  const Config& config_;
  nn::Parameter weight_;  // (V, D)
};

class Block final : public nn::Unit {
 public:
  // `rope`: of this layer, filled by Model::prepare; null: the layer does not rotate.
  Block(const Config& config, int64_t layer, const Rope* rope);
  nn::State forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;
  std::vector<nn::Parameter*> parameters() override;
  std::vector<nn::Linear*> linears() override;
  std::vector<std::vector<nn::Parameter*>> experts() override;
  std::optional<Experts>& mixture() { return experts_; }

 private:
  // x: `sum` through the norm before the MLP. `state`: the unit's output, of which experts take
  // note.
  at::Tensor mlp(const at::Tensor& x, const at::Tensor& sum, nn::State& state,
                 const nn::Batch& batch, const nn::Pass& pass) const;
  at::Tensor own_mlp(const at::Tensor& x, const nn::Batch& batch, const nn::Pass& pass) const;

  const Config& config_;
  std::string name_;
  // What `norms` of the family says: before and after attention, before and after the MLP.
  std::optional<Norm> before_attention_, after_attention_, before_mlp_, after_mlp_;
  std::optional<Norm> beside_experts_;  // of the MLP's output, before experts' is added
  std::unique_ptr<Mixer> mixer_;
  std::optional<Experts> experts_;   // in place of the following, or beside them
  std::vector<nn::Linear> gate_up_;  // gate and up, or one for both; up alone without a gate
  std::optional<nn::Linear> down_;
  std::optional<LayerInput> layer_input_;
  std::optional<nn::Parameter> scale_;  // (1), of the output
};

class Head final : public nn::Head {
 public:
  Head(const Config& config, nn::Parameter* tied);
  std::vector<nn::Parameter*> parameters() override;

 private:
  at::Tensor prepare(const at::Tensor& x, const nn::Pass& pass) override;
  at::Tensor with_own_losses(at::Tensor sum, const nn::State& input, const nn::Batch& batch,
                             const nn::Pass& pass) const override {
    return with_balance(std::move(sum), config_, input, batch, pass);
  }

  const Config& config_;
  Norm norm_;
};

class DecoderModel final : public Model {
 public:
  explicit DecoderModel(Config config);
  std::vector<nn::Unit*> units() override;
  Dimensions dimensions() const override;
  Routing routing() const override {
    if (config_.num_experts == 0) return {};
    return {config_.num_experts, config_.num_hidden_layers, config_.router.k, config_.balance,
            config_.json.contains("router_aux_loss_coef")};
  }
  data::Reading reads() const override {
    return reading_of(config_.labels, config_.json.value("pad_token_id", nlohmann::json()),
                      {.marks_padding = config_.num_experts > 0,
                       .rotates_by_length = config_.rope.type == kernels::cpu::RopeType::LongRope,
                       .reads_rows_before = !all_attend()});
  }
  std::vector<std::string> labels() const override { return config_.labels; }
  Placement placement(Layout layout, const nn::Parameter& parameter) const override;
  bool may_leave_out(const std::string& tensor) const override;
  nlohmann::json hugging_face_config() const override { return config_.json; }
  std::string litgpt_config() const override;
  void write_gguf_config(files::GgufWriter& out) const override { to_gguf(config_, out); }
  std::map<std::string, std::vector<float>> gguf_constants() const override {
    return decoder::gguf_constants(config_);
  }
  double initializer_range() const override { return config_.initializer_range; }
  double flops_per_token(double seqlen, double pictures) const override;
  std::vector<nn::SplitRow> split() const override;
  std::vector<HeadCount> head_counts() const override;
  void prepare(at::Device device, int64_t max_seqlen) override;
  void set_dropout(double probability) override;

 private:
  // Null where the layer does not rotate.
  const Rope* rope_of(int64_t layer) const;
  // Whether every block has attention.
  bool all_attend() const;

  Config config_;
  Rope rope_, window_rope_;
  std::unique_ptr<Embedding> embedding_;
  std::unique_ptr<LayerInputs> layer_inputs_;  // null: blocks get the hidden states alone
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<Head> head_;
};

}  // namespace snug::models::decoder
