// Mamba 2 as Granite 4 has it (Dao & Gu 2024, "Transformers are SSMs"): one layer makes a gate z,
// what a short convolution reads and a time step for each head; behind the scan z gates the values
// and a norm of the whole row, or of each group of heads, follows.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/split_with_sizes.h>

#include <array>
#include <optional>

#include "core/ops/sequence/delta_gates.h"
#include "core/ops/sequence/delta_rule.h"
#include "core/ops/sequence/short_conv.h"
#include "models/decoder/layers.h"
#include "models/decoder/mixer.h"

namespace snug::models::decoder {
namespace {

int64_t inner_size(const Config& c) { return c.mamba_heads * c.mamba_head_dim; }
int64_t groups_size(const Config& c) { return c.mamba_groups * c.mamba_state; }
int64_t convolved_size(const Config& c) { return inner_size(c) + 2 * groups_size(c); }

class Mamba final : public Mixer {
 public:
  Mamba(const Config& c, int64_t layer, const std::string& name)
      : config_(c),
        layer_(layer),
        // Used in float32, as vectors are.
        taps_{.name = name + "mamba.conv1d.weight",
              .shape = {convolved_size(c), c.conv_taps},
              .exact = true,
              .value = {}},
        dt_bias_(of_heads(name + "mamba.dt_bias", c.mamba_heads)),
        a_log_(of_heads(name + "mamba.A_log", c.mamba_heads)),
        d_(of_heads(name + "mamba.D", c.mamba_heads)),
        norm_(name + "mamba.norm", inner_size(c), c.rms_norm_eps),
        out_(name + "mamba.out_proj", nn::Role::Projection, inner_size(c), c.hidden_size,
             bias_if(c.mamba_bias)) {
    in_.emplace_back(name + "mamba.in_proj", nn::Role::Query, c.hidden_size,
                     inner_size(c) + convolved_size(c) + c.mamba_heads, bias_if(c.mamba_bias));
    if (c.conv_bias)
      bias_ = {.name = name + "mamba.conv1d.bias",
               .shape = {convolved_size(c)},
               .init = nn::Init::Zeros,
               .value = {}};
  }

  at::Tensor forward(const at::Tensor& x, nn::State& /*state*/, const nn::Batch& batch,
                     const nn::Pass& pass) const override {
    std::vector<at::Tensor> made = project(
        x, in_, {inner_size(config_), convolved_size(config_), config_.mamba_heads}, batch, pass);
    // Each by itself: what is kept of one does not keep the others.
    for (at::Tensor& part : made) part = part.clone(at::MemoryFormat::Contiguous);
    const auto [g, step] = ops::mamba_gates(made[2], nn::trained_input(a_log_, at::kFloat),
                                            nn::trained_input(dt_bias_, at::kFloat),
                                            {config_.least_step, config_.most_step});
    const at::Tensor heads = scan(convolve(made[1], batch), g, step, batch);
    return out_.forward(normed(made[0], heads.flatten(1)), pass);
  }

  void list(std::vector<nn::Parameter*>& parameters) override {
    in_[0].list(parameters);
    parameters.push_back(&taps_);
    if (bias_) parameters.push_back(&*bias_);
    for (nn::Parameter* own : {&dt_bias_, &a_log_, &d_, &norm_.weight}) parameters.push_back(own);
    out_.list(parameters);
  }
  void list(std::vector<nn::Linear*>& linears) override {
    linears.push_back(&in_[0]);
    linears.push_back(&out_);
  }

 private:
  at::Tensor convolve(const at::Tensor& x, const nn::Batch& batch) const {
    const ops::ShortConv convolution{kernels::ConvForm::Silu, taps_.value,
                                     bias_ ? bias_->value : at::Tensor()};
    return convolved(x, convolution, layer_, batch);
  }

  // x, B and C side by side, g and dt -> (N, H, dv)
  at::Tensor scan(const at::Tensor& all, const at::Tensor& g, const at::Tensor& step,
                  const nn::Batch& batch) const {
    const std::vector<at::Tensor> parts = at::split_with_sizes(
        all, {inner_size(config_), groups_size(config_), groups_size(config_)}, 1);
    const auto heads = [&](size_t part, int64_t count, int64_t dim) {
      return parts[part].view({all.size(0), count, dim});
    };
    const at::Tensor v = heads(0, config_.mamba_heads, config_.mamba_head_dim);
    const at::Tensor k = heads(1, config_.mamba_groups, config_.mamba_state);
    const at::Tensor q = heads(2, config_.mamba_groups, config_.mamba_state);
    const at::Tensor skip = nn::trained_input(d_, at::kFloat);
    nn::KvCache* cache = batch.cache;
    if (cache != nullptr && cache->length() > 0)
      return ops::mamba_step(q, k, v, g, step, skip, cache->state(layer_));
    ops::DeltaRuleContext context{.cu_seqlens = batch.cu_seqlens, .max_seqlen = batch.max_seqlen};
    if (cache != nullptr) {
      const std::array<int64_t, 3> sizes = {config_.mamba_heads, config_.mamba_state,
                                            config_.mamba_head_dim};
      context.final_states = new_state(*cache, layer_, sizes, all.device());
    }
    return ops::mamba_scan(q, k, v, g, step, skip, context);
  }

  // The norm of each group by itself has no weight of its own.
  at::Tensor normed(const at::Tensor& gate, const at::Tensor& x) const {
    const int64_t n = x.size(0), groups = config_.mamba_groups;
    ops::RmsNormOptions options{.eps = norm_.eps};
    if (groups == 1) return ops::gated_rms_norm(gate, x, norm_.weight.value, options);
    options.feeds = ops::NormFeeds::Other;
    const int64_t wide = x.size(1) / groups;
    const at::Tensor unit =
        ops::gated_rms_norm(gate.view({n * groups, wide}), x.view({n * groups, wide}),
                            at::ones({wide}, x.options()), options);
    return at::mul(unit.view(x.sizes()), nn::trained_input(norm_.weight, x.scalar_type()));
  }

  const Config& config_;
  int64_t layer_;
  std::vector<nn::Linear> in_;  // one
  nn::Parameter taps_;          // (values + 2 keys, K)
  std::optional<nn::Parameter> bias_;
  nn::Parameter dt_bias_, a_log_, d_;  // (H)
  nn::RmsNorm norm_;
  nn::Linear out_;
};

}  // namespace

std::unique_ptr<Mixer> make_mamba(const Config& config, int64_t layer, const std::string& name) {
  return std::make_unique<Mamba>(config, layer, name);
}

}  // namespace snug::models::decoder
