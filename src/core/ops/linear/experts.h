// The gated MLPs of a mixture of experts, each on the tokens that are routed to it.
//
// What is saved, and what the passes need beside it, has one size however the tokens are routed, so
// that a plan on meta, where nobody knows the routes, is what a run measures: gates and ups of all
// routes lie in one tensor each, an expert's rows after another's; experts compute one at a time,
// a limited number of rows at once; and where that leaves less allocated than other routes might
// (fewer rows need less scratch), the difference is allocated for a moment too. What fits once
// fits whatever the router learns. Where experts are spread over ranks, gates and ups are computed
// again in the backward instead of kept: all ranks' tokens might be routed to one of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "core/ops/elementwise.h"
#include "core/ops/linear/projection.h"
#include "core/ops/routing.h"

namespace snug::ops {

// One expert: down(gate(x), gated, with up(x)). No layer is split among ranks. A fused one has no
// `up`: gate's outputs are the gates and behind them the ups.
struct Expert {
  Projection gate;
  std::optional<Projection> up;
  Projection down;
};

// A trained tensor of its layers, if there is one.
std::optional<at::Tensor> any_trained(const Expert& expert);

// x (T, D), weights (T, k) of x's type -> (T, D): each token's experts, weighted and summed, in
// float32. The gradient of a trained parameter is there after the backward, zeros for an expert
// without tokens. Rows of an adapter's dropout are numbered from an expert's first route.
// `trained_elsewhere`: any trained tensor of other ranks' experts, empty here, so that all ranks or
// none have a backward.
at::Tensor expert_mlps(const at::Tensor& x, const at::Tensor& weights, const SortedRoutes& routes,
                       std::vector<Expert> experts, const Gate& gate,
                       std::optional<at::Tensor> trained_elsewhere = std::nullopt);

}  // namespace snug::ops
