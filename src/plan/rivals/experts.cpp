// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/experts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>

#include "plan/rivals/operators.h"

namespace snug::plan::rivals {

Experts::Experts(const models::decoder::Config& config, Modules& modules)
    : config_(config),
      modules_(modules),
      router_{.in = config.hidden_size,
              .out = config.num_experts,
              .weight = modules.weight({config.num_experts, config.hidden_size})},
      gate_up_(modules.weight({config.num_experts, 2 * config.expert_size, config.hidden_size})),
      down_(modules.weight({config.num_experts, config.hidden_size, config.expert_size})) {}

// Mixtral's weights of routes stay in float32.
Experts::Routes Experts::routes(const at::Tensor& x) const {
  const at::Tensor logits = modules_.product(router_, x);
  auto [weights, experts] = top_columns(at::softmax(logits, -1, at::kFloat), config_.router.k);
  if (config_.router.normalized) weights = weights / weights.sum(-1, /*keepdim=*/true);
  const bool in_float = config_.family->model_type == "mixtral";
  return {.experts = experts, .weights = in_float ? weights : weights.to(logits.scalar_type())};
}

at::Tensor Experts::forward(const at::Tensor& x) const {
  const at::Tensor rows = x.view({-1, x.size(-1)});
  const Routes routed = routes(rows);
  const at::Tensor ids = routed.experts.view({-1});
  const at::Tensor sorted = at::empty_like(ids), order = at::empty_like(ids);
  const at::Tensor given = taken_rows(rows, at::empty_like(order));
  const at::Tensor weights = taken_rows(routed.weights.reshape({-1}), order);
  const at::Tensor out = modules_.as_module({gate_up_, down_}, given, [&](const at::Tensor& x) {
    const auto parts = grouped_product(x, *gate_up_).chunk(2, -1);
    return grouped_product(at::silu(parts[0]) * parts[1], *down_);
  });
  const at::Tensor weighted = out * weights.unsqueeze(-1);
  const at::Tensor back = taken_rows(weighted, at::empty_like(order));
  const at::Tensor sum = back.view({rows.size(0), -1, rows.size(1)}).sum(1);
  return sum.to(x.scalar_type()).view(x.sizes());
}

}  // namespace snug::plan::rivals
