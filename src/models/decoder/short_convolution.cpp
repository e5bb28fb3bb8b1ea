// LFM2's gated short convolution between two layers (Liquid AI 2025).
// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "core/ops/sequence/short_conv.h"
#include "models/decoder/layers.h"
#include "models/decoder/mixer.h"

namespace snug::models::decoder {
namespace {

class ShortConvolution final : public Mixer {
 public:
  ShortConvolution(const Config& c, int64_t layer, const std::string& name)
      : layer_(layer),
        in_(name + "conv.in_proj", nn::Role::Query, c.hidden_size, 3 * c.hidden_size,
            bias_if(c.conv_bias)),
        // Used in float32, as vectors are.
        taps_{.name = name + "conv.conv.weight",
              .shape = {c.hidden_size, c.conv_taps},
              .exact = true,
              .value = {}},
        out_(name + "conv.out_proj", nn::Role::Projection, c.hidden_size, c.hidden_size,
             bias_if(c.conv_bias)) {
    if (c.conv_bias)
      bias_ = {.name = name + "conv.conv.bias",
               .shape = {c.hidden_size},
               .init = nn::Init::Zeros,
               .value = {}};
  }

  at::Tensor forward(const at::Tensor& x, nn::State& /*state*/, const nn::Batch& batch,
                     const nn::Pass& pass) const override {
    const at::Tensor wide = nn::project(x, {&in_}, nn::num_tokens(batch), pass)[0];
    return out_.forward(convolve(wide, batch), pass);
  }

  void list(std::vector<nn::Parameter*>& parameters) override {
    in_.list(parameters);
    parameters.push_back(&taps_);
    if (bias_) parameters.push_back(&*bias_);
    out_.list(parameters);
  }
  void list(std::vector<nn::Linear*>& linears) override {
    linears.push_back(&in_);
    linears.push_back(&out_);
  }

 private:
  // (N, 3F) -> (N, F), F features on this rank.
  at::Tensor convolve(const at::Tensor& wide, const nn::Batch& batch) const {
    const ops::ShortConv convolution{kernels::ConvForm::Gates, taps_.value,
                                     bias_ ? bias_->value : at::Tensor()};
    return convolved(wide, convolution, layer_, batch);
  }

  int64_t layer_;
  nn::Linear in_;
  nn::Parameter taps_;  // (D, K)
  std::optional<nn::Parameter> bias_;
  nn::Linear out_;
};

}  // namespace

std::unique_ptr<Mixer> make_short_convolution(const Config& config, int64_t layer,
                                              const std::string& name) {
  return std::make_unique<ShortConvolution>(config, layer, name);
}

}  // namespace snug::models::decoder
