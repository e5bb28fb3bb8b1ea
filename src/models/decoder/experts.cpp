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
              c.family->fused_experts ? nn::Bias::Present : nn::Bias::None) {
  for (int64_t expert = 0; expert < c.num_experts; ++expert)
    experts_.push_back(
        make_expert(layer + c.family->names.experts + "." + std::to_string(expert) + "."));
}

Experts::Expert Experts::make_expert(const std::string& name) const {
  const WeightNames& names = config_.family->names;
  const int64_t d = config_.hidden_size, f = config_.expert_size;
  const auto input = [&](const char* layer, int64_t features, nn::Bias bias) {
    return nn::Linear(name + layer, nn::Role::MlpInput, d, features, bias);
  };
  const auto output = [&](nn::Bias bias) {
    return nn::Linear(name + names.expert_down, nn::Role::MlpOutput, f, d, bias);
  };
  if (config_.family->fused_experts)
    return {input(names.expert_gate, 2 * f, nn::Bias::Present), std::nullopt,
            output(nn::Bias::Present)};
  return {input(names.expert_gate, f, nn::Bias::None), input(names.expert_up, f, nn::Bias::None),
          output(nn::Bias::None)};
}

template <class Body>
void Experts::for_each_layer(const Body& body) {
  for (auto& [gate, up, down] : experts_) {
    body(gate);
    if (up) body(*up);
    body(down);
  }
}

at::Tensor Experts::forward(const at::Tensor& x, const nn::Pass& pass) const {
  const ops::Routes routes =
      ops::route(router_.forward(x, pass), config_.experts_per_token, config_.normalized_routes);
  std::vector<ops::Expert> layers;
  for (const auto& [gate, up, down] : experts_)
    layers.push_back({unplaced(gate, pass), up ? std::optional(unplaced(*up, pass)) : std::nullopt,
                      unplaced(down, pass)});
  return ops::expert_mlps(x, routes.weights,
                          ops::sort_by_expert(routes.experts, config_.num_experts),
                          std::move(layers), {config_.activation, config_.expert_clamp});
}

void Experts::list(std::vector<nn::Parameter*>& parameters) {
  router_.list(parameters);
  for_each_layer([&](nn::Linear& linear) { linear.list(parameters); });
}

void Experts::list(std::vector<nn::Linear*>& linears) {
  for_each_layer([&](nn::Linear& linear) { linears.push_back(&linear); });
}

double Experts::idle_flops_per_token() {
  double flops = 0;
  const auto add = [&flops](const nn::Parameter& weight) {
    flops += (weight.trained ? 6.0 : 4.0) * static_cast<double>(weight.shape[0] * weight.shape[1]);
  };
  for_each_layer([&](nn::Linear& linear) {
    add(linear.weight());
    if (linear.adapter() == nullptr) return;
    add(linear.adapter()->a);
    add(linear.adapter()->b);
  });
  return flops * static_cast<double>(config_.num_experts - config_.experts_per_token) /
         static_cast<double>(config_.num_experts);
}

}  // namespace snug::models::decoder
