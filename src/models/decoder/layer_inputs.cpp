// SPDX-License-Identifier: Apache-2.0
#include "models/decoder/layer_inputs.h"

#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>

#include <cmath>

#include "models/decoder/layers.h"

namespace snug::models::decoder {
namespace {

std::string entry_of(int64_t layer) { return "layer input " + std::to_string(layer); }

}  // namespace

LayerInputs::LayerInputs(const Config& c)
    : Unit("layer embeddings", nn::UnitKind::Embedding),
      config_(c),
      table_{.name = "model.embed_tokens_per_layer.weight",
             .shape = {c.layer_input_vocab, c.num_hidden_layers * c.layer_input_size},
             .role = nn::ParameterRole::Embedding,
             .value = {}},
      projection_("model.per_layer_model_projection", nn::Role::Other, c.hidden_size,
                  c.num_hidden_layers * c.layer_input_size, nn::Bias::None),
      norm_("model.per_layer_projection_norm", c.layer_input_size,
            // What it norms is multiplied by 1 / sqrt(D) in transformers, which only its epsilon
            // sees.
            c.rms_norm_eps * static_cast<double>(c.hidden_size), c.norm_form) {}

std::vector<nn::Parameter*> LayerInputs::parameters() {
  std::vector<nn::Parameter*> all{&table_};
  projection_.list(all);
  all.push_back(&norm_.weight);
  return all;
}

nn::State LayerInputs::forward(const nn::State& input, const nn::Batch& batch,
                               const nn::Pass& pass) {
  const int64_t layers = config_.num_hidden_layers, features = config_.layer_input_size;
  const at::Tensor made = projection_.forward(input.at("hidden"), pass);
  at::Tensor sum = norm_.forward(made.view({-1, features}), ops::NormFeeds::Other);
  const at::Tensor rows = nn::look_up(batch.input_ids, table_, pass).view({-1, features});
  sum = at::add(sum, rows, std::sqrt(static_cast<double>(features)));
  // Layer by layer, so that each block's lie together.
  sum = at::mul(sum.view({-1, layers, features}).transpose(0, 1).contiguous(), std::sqrt(0.5));
  nn::State state = input;
  const std::vector<at::Tensor> each = sum.unbind(0);
  for (int64_t layer = 0; layer < layers; ++layer)
    state.set(entry_of(layer), each[static_cast<size_t>(layer)]);
  return state;
}

LayerInput::LayerInput(const Config& c, int64_t layer, const std::string& block)
    : config_(c),
      layer_(layer),
      gate_(block + "per_layer_input_gate", nn::Role::Other, c.hidden_size, c.layer_input_size,
            nn::Bias::None),
      projection_(block + "per_layer_projection", nn::Role::Other, c.layer_input_size,
                  c.hidden_size, nn::Bias::None),
      norm_(rms_norm(c, block + "post_per_layer_input_norm", c.hidden_size)) {}

at::Tensor LayerInput::forward(const at::Tensor& hidden, nn::State& state, const nn::Batch& batch,
                               const nn::Pass& pass) const {
  const at::Tensor own = state.take(entry_of(layer_));
  const at::Tensor gate = nn::project(hidden, {&gate_}, nn::num_tokens(batch), pass)[0];
  const at::Tensor wide =
      projection_.forward_gated(gate, own, config_.activation, pass, ops::Up::Shared);
  return at::add(hidden, norm_.forward(wide, ops::NormFeeds::Other));
}

void LayerInput::list(std::vector<nn::Parameter*>& parameters) {
  gate_.list(parameters);
  projection_.list(parameters);
  parameters.push_back(&norm_.weight);
}

void LayerInput::list(std::vector<nn::Linear*>& linears) {
  linears.push_back(&gate_);
  linears.push_back(&projection_);
}

}  // namespace snug::models::decoder
