// SPDX-License-Identifier: Apache-2.0
#include "models/decoder/experts.h"

#include "core/kernels/random_key.h"
#include "core/ops/linear/experts.h"
#include "core/ops/routing.h"

namespace snug::models::decoder {
namespace {

// Which tokens an expert has, only the router knows: adapters number their rows for dropout as they
// come. Ranks that share sequences each have tokens of their own, and so other masks.
ops::Projection unplaced(const nn::Linear& linear, const nn::Pass& pass) {
  ops::Projection layer = linear.projection(pass);
  if (!layer.adapter) return layer;
  if (pass.rows.stretch > 0)
    layer.adapter->dropout_key =
        kernels::mix64(layer.adapter->dropout_key ^ static_cast<uint64_t>(pass.rows.first));
  layer.adapter->rows = {};
  return layer;
}

}  // namespace

Experts::Experts(const Config& c, const std::string& layer)
    : config_(c),
      router_(layer + c.family->names.router, nn::Role::Other, c.hidden_size, c.num_experts,
              nn::Bias::None) {
  const WeightNames& names = c.family->names;
  const int64_t d = c.hidden_size, f = c.expert_size;
  for (int64_t expert = 0; expert < c.num_experts; ++expert) {
    const std::string name = layer + names.experts + "." + std::to_string(expert) + ".";
    experts_.push_back(
        {.gate = {name + names.expert_gate, nn::Role::MlpInput, d, f, nn::Bias::None},
         .up = {name + names.expert_up, nn::Role::MlpInput, d, f, nn::Bias::None},
         .down = {name + names.expert_down, nn::Role::MlpOutput, f, d, nn::Bias::None}});
  }
}

at::Tensor Experts::forward(const at::Tensor& x, const nn::Pass& pass) const {
  const ops::Routes routes =
      ops::route(router_.forward(x, pass), config_.experts_per_token, config_.normalized_routes);
  std::vector<ops::Expert> layers;
  for (const auto& [gate, up, down] : experts_)
    layers.push_back({unplaced(gate, pass), unplaced(up, pass), unplaced(down, pass)});
  return ops::expert_mlps(x, routes.weights,
                          ops::sort_by_expert(routes.experts, config_.num_experts),
                          std::move(layers), config_.activation);
}

void Experts::list(std::vector<nn::Parameter*>& parameters) {
  router_.list(parameters);
  for (auto& [gate, up, down] : experts_)
    for (nn::Linear* linear : {&gate, &up, &down}) linear->list(parameters);
}

void Experts::list(std::vector<nn::Linear*>& linears) {
  for (auto& [gate, up, down] : experts_) linears.insert(linears.end(), {&gate, &up, &down});
}

double Experts::idle_flops_per_token() const {
  double flops = 0;
  const auto add = [&flops](const nn::Parameter& weight) {
    flops += (weight.trained ? 6.0 : 4.0) * static_cast<double>(weight.shape[0] * weight.shape[1]);
  };
  for (const auto& [gate, up, down] : experts_)
    for (const nn::Linear* linear : {&gate, &up, &down}) {
      add(linear->weight());
      if (linear->adapter() == nullptr) continue;
      add(linear->adapter()->a);
      add(linear->adapter()->b);
    }
  return flops * static_cast<double>(config_.num_experts - config_.experts_per_token) /
         static_cast<double>(config_.num_experts);
}

}  // namespace snug::models::decoder
