// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "models/config_fields.h"
#include "models/decoder/config/parts.h"

namespace snug::models::decoder {
namespace {

using nlohmann::json;

// Values of topk_method and of mlp_layer_types.
constexpr const char* kGreedy = "greedy";
constexpr const char* kByGroups = "group_limited_greedy";
constexpr const char* kDense = "dense";
constexpr const char* kSparse = "sparse";

// How a block chooses a token's experts.
void read_router(Config& c, const ConfigFields& fields) {
  ops::Router& router = c.router;
  router.k = fields.integer_between("num_experts_per_tok", 1, c.num_experts);
  router.normalized = fields.boolean("norm_topk_prob", true);
  router.scale = fields.positive("routed_scaling_factor", 1.0);
  if (c.family->sigmoid_router) router.scores = ops::RouterScores::Sigmoid;
  router.epsilon = c.family->router_epsilon;
  c.router_bias = c.family->sigmoid_router && fields.boolean("use_expert_bias", true);
  const std::string method = fields.text("topk_method", kByGroups);
  if (method != kByGroups && method != kGreedy)
    throw UserError("{}: topk_method \"{}\" is unknown; known are \"{}\" and \"{}\"",
                    fields.where(), printable(method), kGreedy, kByGroups);
  if (c.json.contains("topk_method") && router.normalized)
    throw UserError(
        "{}: norm_topk_prob = true of a {} model is not supported: transformers computes as if it "
        "were false",
        fields.where(), c.family->model_type);
  if (!fields.has("n_group") || method == kGreedy) return;
  router.groups = fields.integer_between("n_group", 1, c.num_experts);
  router.chosen_groups = fields.integer_between("topk_group", 1, router.groups);
  router.best_of_group = c.router_bias ? 2 : 1;
  const int64_t of_a_group = c.num_experts / router.groups;
  if (c.num_experts % router.groups != 0)
    throw UserError("{}: {} experts do not make n_group = {} groups of one size", fields.where(),
                    c.num_experts, router.groups);
  if (of_a_group < router.best_of_group)
    throw UserError(
        "{}: n_group = {} makes groups of {} experts; they are compared by their best {}",
        fields.where(), router.groups, of_a_group, router.best_of_group);
  if (router.chosen_groups * of_a_group < router.k)
    throw UserError(
        "{}: num_experts_per_tok = {}, but topk_group = {} groups of {} experts have {} together",
        fields.where(), router.k, router.chosen_groups, of_a_group,
        router.chosen_groups * of_a_group);
}

// Which blocks have experts: those that a list says, or all but some.
void read_sparse_layers(Config& c, const std::string& where) {
  const ConfigFields fields(c.json, where);
  const std::vector<int64_t> dense = fields.ids("mlp_only_layers");
  const int64_t step = fields.integer_between("decoder_sparse_step", 1, 4096, 1);
  const int64_t first = fields.integer_between(
      c.json.contains("num_dense_layers") ? "num_dense_layers" : "first_k_dense_replace", 0, 4096,
      0);
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer)
    c.layers[static_cast<size_t>(layer)].experts =
        layer >= first && (layer + 1) % step == 0 && std::ranges::find(dense, layer) == dense.end();
  if (!c.json.contains("mlp_layer_types")) return;
  if (!fields.has("mlp_layer_types")) {
    c.json["mlp_layer_types"] = json::array();
    for (const Layer& layer : c.layers)
      c.json["mlp_layer_types"].push_back(layer.experts ? kSparse : kDense);
  }
  const json& types = c.json["mlp_layer_types"];
  if (!types.is_array() || std::ssize(types) != c.num_hidden_layers ||
      !std::ranges::all_of(types,
                           [](const json& type) { return type == kDense || type == kSparse; }))
    throw UserError("{}: \"mlp_layer_types\" is not a list of {} layers, each \"{}\" or \"{}\"",
                    where, c.num_hidden_layers, kDense, kSparse);
  for (size_t layer = 0; layer < types.size(); ++layer)
    c.layers[layer].experts = types[layer] == kSparse;
}

}  // namespace

// Which blocks have experts, and how many.
void read_experts(Config& c, const std::string& where) {
  const ConfigFields fields(c.json, where);
  if (c.json.contains("enable_moe_block") && !fields.boolean("enable_moe_block", false)) return;
  if (!c.json.contains("num_experts_per_tok") || fields.integer("num_local_experts", 1) == 0)
    return;
  const char* count = fields.has("num_local_experts")       ? "num_local_experts"
                      : c.json.contains("n_routed_experts") ? "n_routed_experts"
                                                            : "num_experts";
  c.num_experts = fields.integer_between(count, 1, 1 << 16);
  // Each is an object of its own. The largest published models have some 25,000.
  constexpr int64_t kMostExperts = int64_t{1} << 16;
  if (c.num_experts * c.num_hidden_layers > kMostExperts)
    throw UserError("{}: {} layers of {} experts each are more than the {} that a model may have",
                    where, c.num_hidden_layers, c.num_experts, kMostExperts);
  read_router(c, fields);
  // A family without that key has experts of the size of an MLP.
  const std::optional<int64_t> usual_size =
      c.json.contains("moe_intermediate_size") ? std::nullopt : std::optional(c.intermediate_size);
  if (c.expert_size == 0)
    c.expert_size = fields.integer_between("moe_intermediate_size", 1, 1 << 22, usual_size);
  const double balance = fields.number("router_aux_loss_coef", 0.0);
  if (!std::isfinite(balance) || balance < 0)
    throw UserError("{}: router_aux_loss_coef = {} must be 0 or more", where, balance);
  if (fields.boolean("output_router_logits", false)) c.balance = balance;
  c.shares_expert = c.json.contains("shared_expert_intermediate_size");
  if (c.shares_expert)
    c.shared_expert_size =
        fields.integer_between("shared_expert_intermediate_size", 1, kLargestMlp);
  if (fields.has("n_shared_experts"))
    c.shared_expert_size = c.expert_size * fields.integer_between("n_shared_experts", 0, 1 << 10);
  if (c.family->biased_experts) {
    if (c.activation != ops::Activation::Silu)
      throw UserError("{}: the experts of a {} model have the activation silu, not \"{}\"", where,
                      c.family->model_type, fields.text("hidden_act"));
    c.expert_clamp = {.limit = static_cast<float>(fields.positive("swiglu_limit")),
                      .alpha = static_cast<float>(fields.positive("swiglu_alpha"))};
  }
  read_sparse_layers(c, where);
  // transformers 5 writes the other name too, which version 4 does not read.
  if (!c.json.contains("num_experts")) return;
  c.json["num_experts"] = c.num_experts;
  c.json.erase("num_local_experts");
}

}  // namespace snug::models::decoder
