// SPDX-License-Identifier: Apache-2.0
#include "models/decoder/experts.h"

#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

#include "core/kernels/random_key.h"
#include "core/nn/objective.h"
#include "core/ops/linear/experts.h"
#include "core/ops/routing.h"
#include "models/decoder/layers.h"

namespace snug::models::decoder {
namespace {

// Which tokens an expert has, only the router knows: adapters number their rows for dropout as they
// come. Ranks that share sequences each have tokens of their own, and so other masks.
ops::Projection unplaced(const nn::Linear& linear, const nn::Pass& pass) {
  ops::Projection layer = linear.projection(pass);
  if (!layer.adapter) return layer;
  if (pass.rows.stretch > 0)
    layer.adapter->dropout_key =
        kernels::mix64(layer.adapter->dropout_key.own ^ static_cast<uint64_t>(pass.rows.first));
  layer.adapter->rows = {};
  return layer;
}

// Names of sums over all blocks so far, in the state: (E) float32, as ops::Balance wants them.
constexpr const char* kProbabilities = "router_probabilities";
constexpr const char* kCounts = "router_counts";

void add_up(nn::State& state, const char* name, const at::Tensor& own) {
  state.set(name, state.has(name) ? at::add(state.at(name), own) : own);
}

void count_in(std::vector<int64_t>& sums, const std::vector<int64_t>& counts) {
  sums.resize(counts.size());
  std::ranges::transform(counts, sums, sums.begin(), std::plus<>());
}

bool balances(const nn::Pass& pass) {
  return pass.output == nn::Output::Objective && nn::objective_of(pass).balance() > 0;
}

at::Tensor on_device(const std::vector<int64_t>& numbers, ops::Upload& upload) {
  const std::vector<float> counts(numbers.begin(), numbers.end());
  return upload.tensor(counts.data(), {std::ssize(counts)}, at::kFloat);
}

}  // namespace

at::Tensor with_balance(at::Tensor sum, const Config& config, const nn::State& state,
                        const nn::Batch& batch, const nn::Pass& pass) {
  if (!state.has(kProbabilities)) return sum;
  const nn::Objective& objective = nn::objective_of(pass);
  const int64_t terms = objective.terms(
      {.documents = batch.cu_seqlens.size(0) - 1, .loss_tokens = batch.loss_tokens});
  return ops::add_balance(sum, {.probabilities = state.at(kProbabilities),
                                .counts = state.at(kCounts),
                                .k = config.router.k,
                                .weight = objective.balance() * static_cast<double>(terms),
                                .gradient_scale = pass.gradient_scale});
}

Experts::Experts(const Config& c, int64_t block, const std::string& layer)
    : config_(c),
      block_(block),
      router_(layer + c.family->names.router, nn::Role::Other, c.hidden_size, c.num_experts,
              bias_if(c.family->biased_experts)),
      shared_(shared_expert(c, layer)) {
  experts_.reserve(static_cast<size_t>(c.num_experts));
  for (int64_t expert = 0; expert < c.num_experts; ++expert)
    experts_.push_back(
        make_expert(layer + c.family->names.experts + "." + std::to_string(expert) + "."));
  if (c.router_bias)
    router_bias_ = constant(layer + c.family->names.router_bias, c.num_experts, nn::Init::Zeros);
  if (!c.family->normed_experts) return;
  router_norm_ = rms_norm(c, layer + "router", c.hidden_size);
  router_norm_->weight.name = layer + "router.scale";
  before_ = rms_norm(c, layer + "pre_feedforward_layernorm_2", c.hidden_size);
  after_ = rms_norm(c, layer + "post_feedforward_layernorm_2", c.hidden_size);
  expert_scale_ = {.name = layer + "router.per_expert_scale",
                   .shape = {c.num_experts, 1},
                   .role = nn::ParameterRole::Vector,
                   .init = nn::Init::Ones,
                   .value = {}};
}

Experts::Expert Experts::make_expert(const std::string& name) const {
  const WeightNames& names = config_.family->names;
  const int64_t d = config_.hidden_size, f = config_.expert_size;
  const nn::Bias bias = bias_if(config_.family->biased_experts);
  const auto input = [&](const char* layer, int64_t features) {
    return nn::Linear(name + layer, nn::Role::MlpInput, d, features, bias);
  };
  nn::Linear output(name + names.expert_down, nn::Role::MlpOutput, f, d, bias);
  if (config_.family->fused_experts)
    return {input(names.expert_gate, 2 * f), std::nullopt, std::move(output)};
  return {input(names.expert_gate, f), input(names.expert_up, f), std::move(output)};
}

template <class Body>
void Experts::for_each_layer(Expert& expert, const Body& body) {
  body(expert.gate);
  if (expert.up) body(*expert.up);
  body(expert.down);
}

template <class Body>
void Experts::for_each_layer(const Body& body) {
  for (Expert& expert : experts_) for_each_layer(expert, body);
}

std::optional<ops::ExpertShare> Experts::share_of(const nn::Batch& batch) const {
  const nn::Parameter& any = experts_.front().gate.weight();
  if (!any.belongs_to_expert()) return std::nullopt;
  return ops::ExpertShare{.group = any.share->group, .most_tokens = batch.most_tokens};
}

std::optional<Experts::Shared> Experts::shared_expert(const Config& c, const std::string& layer) {
  if (c.shared_expert_size == 0) return std::nullopt;
  const std::string name = layer + c.family->names.shared_expert;
  const auto of = [&](const char* own, nn::Role role, int64_t in, int64_t out) {
    return nn::Linear(name + own, role, in, out, bias_if(c.mlp_bias));
  };
  const int64_t d = c.hidden_size, f = c.shared_expert_size;
  Shared shared{of(".gate_proj", nn::Role::MlpInput, d, f),
                of(".up_proj", nn::Role::MlpInput, d, f),
                of(".down_proj", nn::Role::MlpOutput, f, d), std::nullopt};
  if (c.shares_expert) shared.share.emplace(name + "_gate", nn::Role::Other, d, 1, nn::Bias::None);
  return shared;
}

at::Tensor Experts::forward(const at::Tensor& x, nn::State& state, const nn::Batch& batch,
                            const nn::Pass& pass) const {
  at::Tensor sum = routed(x, state, batch, pass);
  if (after_) sum = after_->forward(sum, ops::NormFeeds::Other);
  if (!shared_) return sum;
  const std::vector<at::Tensor> wide =
      nn::project(x, {&shared_->gate, &shared_->up}, x.size(0), pass);
  const at::Tensor own = shared_->down.forward_gated(wide[0], wide[1], config_.activation, pass);
  if (!shared_->share) return at::add(sum, own);
  return at::add(sum, at::mul(own, at::sigmoid(shared_->share->forward(x, pass))));
}

ops::Routes Experts::routes_of(const at::Tensor& x, const nn::Batch& batch,
                               const nn::Pass& pass) const {
  ops::Router router = config_.router;
  if (router_bias_) router.bias = router_bias_->value;
  at::Tensor logits = router_.forward(router_norm_ ? router_norm_->forward(x) : x, pass);
  if (router_norm_)
    logits = at::mul(logits, 1 / std::sqrt(static_cast<double>(config_.hidden_size)));
  ops::Routes routes = ops::route(
      logits, router, balances(pass) ? ops::Probabilities::Summed : ops::Probabilities::Unsummed,
      batch.real);
  if (expert_scale_) {
    const at::Tensor ids = routes.experts.flatten().to(at::kInt);
    const at::Tensor scales = nn::look_up(ids, *expert_scale_, pass);
    routes.weights = at::mul(routes.weights,
                             scales.view(routes.weights.sizes()).to(routes.weights.scalar_type()));
  }
  return routes;
}

at::Tensor Experts::routed(const at::Tensor& input, nn::State& state, const nn::Batch& batch,
                           const nn::Pass& pass) const {
  const ops::Routes routes = routes_of(input, batch, pass);
  const at::Tensor x = before_ ? before_->forward(input, ops::NormFeeds::Other) : input;
  const int64_t k = config_.router.k, all = config_.num_experts;
  const std::optional<ops::ExpertShare> share = share_of(batch);
  const at::Tensor choices = share ? ops::choices_of_all(routes.experts, *share) : routes.experts;
  const std::vector<int64_t> chosen = ops::read_experts(choices);
  std::span<const int64_t> own = chosen;
  if (share && !chosen.empty()) own = own.subspan(share->first_row() * k, x.size(0) * k);
  const std::vector<int64_t> counts = ops::count_routes(own, k, all, batch.real);
  const int64_t first = share ? share->first_expert(all) : 0;
  ops::SortedRoutes sorted =
      ops::sort_by_expert(choices, chosen, first, share ? share->own_experts(all) : all);
  if (pass.routed != nullptr) count_in((*pass.routed)[block_], counts);
  if (balances(pass)) {
    add_up(state, kProbabilities, routes.probabilities);
    add_up(state, kCounts, on_device(counts, *sorted.upload));
  }
  std::vector<ops::Expert> layers;
  std::optional<at::Tensor> trained_elsewhere;
  for (const auto& [gate, up, down] : experts_) {
    ops::Expert layer{unplaced(gate, pass), up ? std::optional(unplaced(*up, pass)) : std::nullopt,
                      unplaced(down, pass)};
    if (!gate.weight().is_elsewhere())
      layers.push_back(std::move(layer));
    else if (!trained_elsewhere)
      trained_elsewhere = ops::any_trained(layer);
  }
  const ops::Gate activation{config_.activation, config_.expert_clamp};
  if (!share) return ops::expert_mlps(x, routes.weights, sorted, std::move(layers), activation);
  sorted.others_last = true;
  const at::Tensor tokens = ops::tokens_of_all(x, *share);
  const at::Tensor weights = ops::tokens_of_all(routes.weights, *share);
  const at::Tensor terms = ops::expert_mlps(tokens, weights, sorted, std::move(layers), activation,
                                            std::move(trained_elsewhere));
  return ops::sum_of_terms(terms, x.size(0), *share);
}

std::vector<std::vector<nn::Parameter*>> Experts::parameters_of_each() {
  std::vector<std::vector<nn::Parameter*>> all(experts_.size());
  for (size_t i = 0; i < experts_.size(); ++i)
    for_each_layer(experts_[i], [&](nn::Linear& linear) { linear.list(all[i]); });
  return all;
}

void Experts::list(std::vector<nn::Parameter*>& parameters) {
  router_.list(parameters);
  if (router_bias_) parameters.push_back(&*router_bias_);
  for (auto* norm : {&router_norm_, &before_, &after_})
    if (*norm) parameters.push_back(&(*norm)->weight);
  if (expert_scale_) parameters.push_back(&*expert_scale_);
  for_each_layer([&](nn::Linear& linear) { linear.list(parameters); });
  if (!shared_) return;
  for (nn::Linear* layer : {&shared_->gate, &shared_->up, &shared_->down}) layer->list(parameters);
  if (shared_->share) shared_->share->list(parameters);
}

void Experts::list(std::vector<nn::Linear*>& linears) {
  for_each_layer([&](nn::Linear& linear) { linears.push_back(&linear); });
  if (!shared_) return;
  for (nn::Linear* layer : {&shared_->gate, &shared_->up, &shared_->down}) linears.push_back(layer);
}

double Experts::idle_flops_per_token() {
  double flops = 0;
  const auto add = [&flops](const nn::Parameter& weight) {
    const std::vector<int64_t>& shape = weight.whole_shape();
    flops += (weight.trained ? 6.0 : 4.0) * static_cast<double>(shape[0] * shape[1]);
  };
  for_each_layer([&](nn::Linear& linear) {
    add(linear.weight());
    if (linear.adapter() == nullptr) return;
    add(linear.adapter()->a);
    add(linear.adapter()->b);
  });
  return flops * static_cast<double>(config_.num_experts - config_.router.k) /
         static_cast<double>(config_.num_experts);
}

}  // namespace snug::models::decoder
