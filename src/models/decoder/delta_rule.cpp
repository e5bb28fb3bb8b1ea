// The gated delta rule as Qwen3.5 has it (Yang et al. 2024, "Gated Delta Networks"): queries, keys
// and values through a short convolution, a decay and a rate of learning for each value head, and
// behind it a norm of each head between gates.
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/sequence/delta_rule.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/split_with_sizes.h>

#include <array>

#include "core/ops/sequence/delta_gates.h"
#include "core/ops/sequence/short_conv.h"
#include "models/decoder/layers.h"
#include "models/decoder/mixer.h"

namespace snug::models::decoder {
namespace {

int64_t keys_of(const Config& c) { return c.delta_key_heads * c.delta_key_dim; }
int64_t values_of(const Config& c) { return c.delta_value_heads * c.delta_value_dim; }

// What makes q, k and v, the gate z, b and a: four layers, or two.
std::vector<nn::Linear> input_layers(const Config& c, const std::string& name) {
  const int64_t qkv = 2 * keys_of(c) + values_of(c), z = values_of(c), heads = c.delta_value_heads;
  std::vector<nn::Linear> all;
  const auto add = [&](const char* layer, int64_t features, nn::Role role = nn::Role::Other) {
    all.emplace_back(name + layer, role, c.hidden_size, features, nn::Bias::None);
  };
  if (c.family->joined_delta) {
    add("in_proj_qkvz", qkv + z, nn::Role::Query);
    add("in_proj_ba", 2 * heads);
    return all;
  }
  add("in_proj_qkv", qkv, nn::Role::Query);
  add("in_proj_z", z);
  add("in_proj_b", heads);
  add("in_proj_a", heads);
  return all;
}

// The parts of each key head of x (N, Hk times the sum of `sizes`), side by side over all heads.
std::vector<at::Tensor> of_key_heads(const at::Tensor& x, const Config& c,
                                     const std::vector<int64_t>& sizes) {
  const at::Tensor heads = x.view({x.size(0), c.delta_key_heads, x.size(1) / c.delta_key_heads});
  std::vector<at::Tensor> parts = at::split_with_sizes(heads, sizes, 2);
  for (at::Tensor& part : parts) part = part.flatten(1);
  return parts;
}

// What two layers made as four would have made it.
std::vector<at::Tensor> by_parts(const Config& c, const at::Tensor& qkvz, const at::Tensor& ba) {
  const int64_t shared = c.delta_value_heads / c.delta_key_heads, wide = shared * c.delta_value_dim;
  std::vector<at::Tensor> of_qkvz =
      of_key_heads(qkvz, c, {c.delta_key_dim, c.delta_key_dim, wide, wide});
  const at::Tensor z = of_qkvz.back();
  of_qkvz.pop_back();
  const std::vector<at::Tensor> of_ba = of_key_heads(ba, c, {shared, shared});
  return {at::cat(of_qkvz, 1), z, of_ba[0], of_ba[1]};
}

class DeltaRule final : public Mixer {
 public:
  DeltaRule(const Config& c, int64_t layer, const std::string& name)
      : config_(c),
        layer_(layer),
        inputs_(input_layers(c, name + "linear_attn.")),
        // Used in float32, as vectors are.
        taps_{.name = name + "linear_attn.conv1d.weight",
              .shape = {2 * keys() + values(), c.conv_taps},
              .exact = true,
              .value = {}},
        dt_bias_(of_heads(name + "linear_attn.dt_bias", c.delta_value_heads)),
        a_log_(of_heads(name + "linear_attn.A_log", c.delta_value_heads)),
        norm_(name + "linear_attn.norm", c.delta_value_dim, c.rms_norm_eps),
        out_(name + "linear_attn.out_proj", nn::Role::Projection, values(), c.hidden_size,
             nn::Bias::None) {}

  at::Tensor forward(const at::Tensor& x, nn::State& /*state*/, const nn::Batch& batch,
                     const nn::Pass& pass) const override {
    std::vector<at::Tensor> made = project(x, inputs_, {}, batch, pass);
    if (config_.family->joined_delta) made = by_parts(config_, made[0], made[1]);
    const auto [g, beta] = ops::delta_gates(made[3], made[2], nn::trained_input(a_log_, at::kFloat),
                                            nn::trained_input(dt_bias_, at::kFloat));
    const at::Tensor heads = recall(convolve(made[0], batch), g, beta, batch);
    return out_.forward_gated(made[1], norm_.forward_heads(heads.flatten(1)), ops::Activation::Silu,
                              pass);
  }

  void list(std::vector<nn::Parameter*>& parameters) override {
    for (nn::Linear& layer : inputs_) layer.list(parameters);
    for (nn::Parameter* own : {&taps_, &dt_bias_, &a_log_, &norm_.weight})
      parameters.push_back(own);
    out_.list(parameters);
  }
  void list(std::vector<nn::Linear*>& linears) override {
    for (nn::Linear& layer : inputs_) linears.push_back(&layer);
    linears.push_back(&out_);
  }

 private:
  int64_t keys() const { return keys_of(config_); }
  int64_t values() const { return values_of(config_); }

  at::Tensor convolve(const at::Tensor& qkv, const nn::Batch& batch) const {
    const ops::ShortConv convolution{kernels::ConvForm::Silu, taps_.value, {}};
    return convolved(qkv, convolution, layer_, batch);
  }

  // (N, 2 keys + values) -> (N, Hv, dv)
  at::Tensor recall(const at::Tensor& qkv, const at::Tensor& g, const at::Tensor& beta,
                    const nn::Batch& batch) const {
    const std::vector<at::Tensor> parts = at::split_with_sizes(qkv, {keys(), keys(), values()}, 1);
    const auto heads = [&](int64_t part, int64_t count, int64_t dim) {
      return parts[static_cast<size_t>(part)].view({qkv.size(0), count, dim});
    };
    const at::Tensor q = heads(0, config_.delta_key_heads, config_.delta_key_dim);
    const at::Tensor k = heads(1, config_.delta_key_heads, config_.delta_key_dim);
    const at::Tensor v = heads(2, config_.delta_value_heads, config_.delta_value_dim);
    nn::KvCache* cache = batch.cache;
    if (cache != nullptr && cache->length() > 0)
      return ops::gated_delta_step(q, k, v, g, beta, cache->state(layer_));
    ops::DeltaRuleContext context{.cu_seqlens = batch.cu_seqlens, .max_seqlen = batch.max_seqlen};
    if (cache != nullptr) {
      const std::array<int64_t, 3> sizes = {config_.delta_value_heads, config_.delta_key_dim,
                                            config_.delta_value_dim};
      context.final_states = new_state(*cache, layer_, sizes, qkv.device());
    }
    return ops::gated_delta_rule(q, k, v, g, beta, context);
  }

  const Config& config_;
  int64_t layer_;
  std::vector<nn::Linear> inputs_;
  nn::Parameter taps_;             // (2 keys + values, K)
  nn::Parameter dt_bias_, a_log_;  // (Hv)
  nn::RmsNorm norm_;
  nn::Linear out_;
};

}  // namespace

std::unique_ptr<Mixer> make_delta_rule(const Config& config, int64_t layer,
                                       const std::string& name) {
  return std::make_unique<DeltaRule>(config, layer, name);
}

}  // namespace snug::models::decoder
