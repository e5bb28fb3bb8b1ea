// Multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1): keys and values are
// made from one short vector a token, and queries from another; besides, all heads share the part
// of a key that rotates.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/split_with_sizes.h>

#include <optional>

#include "core/nn/attention.h"
#include "models/decoder/layers.h"
#include "models/decoder/mixer.h"

namespace snug::models::decoder {
namespace {

// As transformers has it, whatever the config says of other norms.
constexpr double kLatentEps = 1e-6;

class LatentAttention final : public Mixer {
 public:
  LatentAttention(const Config& c, int64_t layer, const std::string& name, const Rope* rope)
      : config_(c),
        layer_(layer),
        rope_(rope),
        site_(name + "self_attn"),
        latents_(site_ + ".kv_a_proj_with_mqa", nn::Role::Other, c.hidden_size,
                 c.latent_rank + c.rotated.dim, bias_if(c.qkv_bias)),
        latents_norm_(site_ + ".kv_a_layernorm", c.latent_rank, kLatentEps),
        keys_and_values_(site_ + ".kv_b_proj", nn::Role::Value, c.latent_rank,
                         c.num_attention_heads * (c.rotated.first + c.value_dim), nn::Bias::None),
        queries_(site_ + (c.query_rank > 0 ? ".q_b_proj" : ".q_proj"), nn::Role::Query,
                 c.query_rank > 0 ? c.query_rank : c.hidden_size,
                 c.num_attention_heads * c.head_dim, nn::Bias::None),
        o_(site_ + ".o_proj", nn::Role::Projection, c.num_attention_heads * c.value_dim,
           c.hidden_size, bias_if(c.output_bias)) {
    if (c.query_rank == 0) return;
    query_latents_.emplace(site_ + ".q_a_proj", nn::Role::Other, c.hidden_size, c.query_rank,
                           bias_if(c.qkv_bias));
    query_norm_.emplace(site_ + ".q_a_layernorm", c.query_rank, kLatentEps);
  }

  at::Tensor forward(const at::Tensor& x, nn::State& state, const nn::Batch& batch,
                     const nn::Pass& pass) const override;

  void list(std::vector<nn::Parameter*>& parameters) override {
    if (query_latents_) query_latents_->list(parameters);
    if (query_norm_) parameters.push_back(&query_norm_->weight);
    queries_.list(parameters);
    latents_.list(parameters);
    parameters.push_back(&latents_norm_.weight);
    keys_and_values_.list(parameters);
    o_.list(parameters);
  }
  void list(std::vector<nn::Linear*>& linears) override {
    if (query_latents_) linears.push_back(&*query_latents_);
    for (nn::Linear* layer : {&queries_, &latents_, &keys_and_values_, &o_})
      linears.push_back(layer);
  }

 private:
  // What the first layers make of x: queries (N, H d) and latents with the rotated part of a key.
  std::pair<at::Tensor, at::Tensor> read(const at::Tensor& x, const nn::Batch& batch,
                                         const nn::Pass& pass) const;

  const Config& config_;
  int64_t layer_;
  const Rope* rope_;
  std::string site_;
  std::optional<nn::Linear> query_latents_;
  std::optional<nn::RmsNorm> query_norm_;
  nn::Linear latents_;  // and behind them the part of a key that rotates
  nn::RmsNorm latents_norm_;
  nn::Linear keys_and_values_;  // of each head a key's part that does not rotate, and its value
  nn::Linear queries_;
  nn::Linear o_;
};

std::pair<at::Tensor, at::Tensor> LatentAttention::read(const at::Tensor& x, const nn::Batch& batch,
                                                        const nn::Pass& pass) const {
  const nn::Linear& first = query_latents_ ? *query_latents_ : queries_;
  const std::vector<at::Tensor> made =
      nn::project(x, {&first, &latents_}, nn::num_tokens(batch), pass);
  if (!query_norm_) return {made[0], made[1]};
  return {queries_.forward(query_norm_->forward(made[0]), pass), made[1]};
}

at::Tensor LatentAttention::forward(const at::Tensor& x, nn::State& /*state*/,
                                    const nn::Batch& batch, const nn::Pass& pass) const {
  const int64_t heads = config_.num_attention_heads, plain = config_.rotated.first;
  const auto [q, wide] = read(x, batch, pass);
  const std::vector<at::Tensor> parts =
      at::split_with_sizes(wide, {config_.latent_rank, config_.rotated.dim}, 1);
  const at::Tensor both =
      keys_and_values_.forward(latents_norm_.forward(parts[0].contiguous()), pass);
  const std::vector<at::Tensor> kv = at::split_with_sizes(
      nn::split_heads(both, plain + config_.value_dim), {plain, config_.value_dim}, 2);
  const at::Tensor rotated = parts[1].unsqueeze(1).expand({-1, heads, -1});
  const at::Tensor k = at::cat({kv[0], rotated}, 2);
  // Attention's kernels have values as wide as keys.
  const at::Tensor v = at::constant_pad_nd(kv[1], {0, config_.head_dim - config_.value_dim});
  nn::Batch placed = batch;
  placed.positions = rope_->places(batch);
  const nn::AttentionOptions options{.scale = config_.attention_scale,
                                     .rope = &rope_->tables(),
                                     .bias_table = {},
                                     .dropout = config_.attention_dropout,
                                     .site = site_,
                                     .queries = &queries_};
  at::Tensor mixed = nn::causal_attention(nn::split_heads(q, config_.head_dim), k, v, layer_,
                                          options, placed, pass);
  if (config_.value_dim < config_.head_dim)
    mixed = nn::split_heads(mixed, config_.head_dim).narrow(2, 0, config_.value_dim).flatten(1);
  return o_.forward(mixed, pass);
}

}  // namespace

std::unique_ptr<Mixer> make_latent_attention(const Config& config, int64_t layer,
                                             const std::string& name, const Rope* rope) {
  return std::make_unique<LatentAttention>(config, layer, name, rope);
}

}  // namespace snug::models::decoder
