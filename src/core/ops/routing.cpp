// SPDX-License-Identifier: Apache-2.0
#include "core/ops/routing.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/add.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>
#include <numeric>
#include <optional>
#include <tuple>

#include "core/ops/device/carried.h"
#include "core/ops/device/device.h"
#include "core/ops/device/host_waits.h"
#include "core/ops/device/kept.h"
#include "core/ops/elementwise.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor as_type(const at::Tensor& x, at::ScalarType type) {
  return x.scalar_type() == type ? x : cast(x, type);
}

at::Tensor scores_of(const at::Tensor& logits, const Router& router) {
  const at::Tensor exact = as_type(logits, at::kFloat);
  return router.scores == RouterScores::Sigmoid ? at::sigmoid(exact)
                                                : at::_softmax(exact, 1, /*half_to_float=*/false);
}

// The scores (T, E), and minus infinity in groups that a token does not choose.
at::Tensor in_chosen_groups(const at::Tensor& scores, const Router& router) {
  const int64_t tokens = scores.size(0), groups = router.groups;
  const at::Tensor grouped = scores.view({tokens, groups, scores.size(1) / groups});
  const at::Tensor sums = std::get<0>(at::topk(grouped, router.best_of_group, 2)).sum(2);
  const at::Tensor chosen = std::get<1>(at::topk(sums, router.chosen_groups, 1));
  const at::Tensor shift =
      at::full_like(sums, -std::numeric_limits<float>::infinity()).scatter_(1, chosen, 0);
  return at::add(grouped, shift.unsqueeze(2)).view(scores.sizes());
}

// The scores and the numbers of a token's experts, both (T, k).
std::tuple<at::Tensor, at::Tensor> choose(const at::Tensor& scores, const Router& router) {
  const auto best = [&](const at::Tensor& by) {
    return at::topk(by, router.k, 1, /*largest=*/true, /*sorted=*/true);
  };
  if (!router.bias.defined() && router.groups == 1) return best(scores);
  at::Tensor by = router.bias.defined() ? at::add(scores, router.bias) : scores;
  if (router.groups > 1) by = in_chosen_groups(by, router);
  const at::Tensor experts = std::get<1>(best(by));
  return {scores.gather(1, experts), experts};
}

// (T, 1): what normalized weights are divided by.
at::Tensor sum_of(const at::Tensor& chosen, const Router& router) {
  at::Tensor sums = chosen.sum(1, /*keepdim=*/true);
  return router.epsilon == 0 ? sums : sums.add_(router.epsilon);
}

struct RouteFunction : torch::autograd::Function<RouteFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& logits, const Router& router,
                               bool summed, const std::optional<at::Tensor>& real) {
    const at::Tensor scores = scores_of(logits, router);
    auto [weights, experts] = choose(scores, router);
    if (router.normalized) weights.div_(sum_of(weights, router));
    if (router.scale != 1) weights.mul_(router.scale);
    carry(ctx, router);
    ctx->mark_non_differentiable({experts});
    keep(ctx, {scores, experts, real.value_or(at::Tensor())});
    variable_list routes = {as_type(weights, logits.scalar_type()), experts};
    if (summed) routes.push_back(real ? at::mv(scores.t(), *real) : scores.sum(0));
    return routes;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &scores = saved[0], &experts = saved[1];
    const Router& router = carried<Router>(ctx);
    at::Tensor d_chosen = as_type(grads[0], at::kFloat);
    if (router.scale != 1) d_chosen = d_chosen * router.scale;
    if (router.normalized) {
      const at::Tensor chosen = scores.gather(1, experts);
      const at::Tensor sums = sum_of(chosen, router);
      const at::Tensor along = (d_chosen * chosen).sum(1, /*keepdim=*/true) / sums;
      d_chosen = (d_chosen - along) / sums;
    }
    at::Tensor d_scores = at::zeros_like(scores).scatter_(1, experts, d_chosen);
    if (grads.size() > 2)
      d_scores.add_(saved[2].defined() ? at::outer(saved[2], grads[2]) : grads[2]);
    const at::Tensor d_logits = router.scores == RouterScores::Sigmoid
                                    ? at::sigmoid_backward(d_scores, scores)
                                    : at::_softmax_backward_data(d_scores, scores, 1, at::kFloat);
    return {as_type(d_logits, grads[0].scalar_type()), {}, {}, {}};
  }
};

struct BalanceFunction : torch::autograd::Function<BalanceFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& sum,
                            const at::Tensor& probabilities, const at::Tensor& counts, int64_t k,
                            double weight, double gradient_scale) {
    // Rows of all layers; of each the router chose k.
    const at::Tensor rows = at::clamp_min(counts.sum() / k, 1);
    const at::Tensor factors =
        counts * (weight * static_cast<double>(counts.size(0))) / rows / rows;
    ctx->saved_data["gradient_scale"] = gradient_scale;
    keep(ctx, {factors});
    return sum + (factors * probabilities).sum();
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor factors = ctx->get_saved_variables()[0];
    return {grads[0], factors * ctx->saved_data["gradient_scale"].toDouble(), {}, {}, {}, {}};
  }
};

}  // namespace

Routes route(const at::Tensor& logits, const Router& router, Probabilities probabilities,
             const RealRows& real) {
  const bool summed = probabilities == Probabilities::Summed;
  const std::optional<at::Tensor> marks =
      summed && real.on_device.defined() ? std::optional(real.on_device) : std::nullopt;
  const variable_list routes = RouteFunction::apply(logits, router, summed, marks);
  return {.weights = routes[0],
          .experts = routes[1],
          .probabilities = summed ? routes[2] : at::Tensor()};
}

std::vector<int64_t> read_experts(const at::Tensor& experts) {
  note_host_wait(kernel_device(experts));
  std::vector<int64_t> values(experts.is_meta() ? 0 : static_cast<size_t>(experts.numel()));
  if (!values.empty()) at::from_blob(values.data(), experts.sizes(), at::kLong).copy_(experts);
  return values;
}

std::vector<int64_t> count_routes(std::span<const int64_t> chosen, int64_t k, int64_t num_experts,
                                  const RealRows& real) {
  std::vector<int64_t> counts(static_cast<size_t>(num_experts));
  for (size_t place = 0; place < chosen.size(); ++place)
    if (real.host.empty() || real.host[place / static_cast<size_t>(k)] > 0)
      ++counts[static_cast<size_t>(chosen[place])];
  return counts;
}

SortedRoutes sort_by_expert(const at::Tensor& experts, std::span<const int64_t> chosen,
                            int64_t first, int64_t num_experts) {
  const int64_t count = experts.numel(), k = experts.size(1);
  const auto own = [&](int64_t expert) {
    const bool is_here = expert >= first && expert < first + num_experts;
    return static_cast<size_t>(is_here ? expert - first : num_experts);
  };
  SortedRoutes sorted{.upload = std::make_shared<Upload>(experts.device())};
  std::vector<int64_t> next(static_cast<size_t>(num_experts) + 2);
  for (const int64_t expert : chosen) ++next[own(expert) + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  sorted.begins.assign(next.begin(), next.end() - 1);
  // Tokens, places, positions.
  std::vector<int32_t> numbers(static_cast<size_t>(3 * count));
  for (size_t place = 0; place < chosen.size(); ++place) {
    const auto position = static_cast<size_t>(next[own(chosen[place])]++);
    numbers[position] = static_cast<int32_t>(static_cast<int64_t>(place) / k);
    numbers[chosen.size() + position] = static_cast<int32_t>(place);
    numbers[2 * chosen.size() + place] = static_cast<int32_t>(position);
  }
  const at::Tensor all = sorted.upload->tensor(numbers.data(), {3, count}, at::kInt);
  sorted.tokens = all.select(0, 0);
  sorted.places = all.select(0, 1);
  sorted.positions = all.select(0, 2);
  return sorted;
}

at::Tensor add_balance(const at::Tensor& sum, const Balance& balance) {
  return BalanceFunction::apply(sum, balance.probabilities, balance.counts, balance.k,
                                balance.weight, balance.gradient_scale);
}

}  // namespace snug::ops
