// A block's mixture of experts: a router, and gated MLPs of which each token takes the few that the
// router gives it, and in some families one that all take.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/nn/functions.h"
#include "core/nn/linear.h"
#include "core/nn/unit.h"
#include "core/ops/expert_share.h"
#include "models/decoder/config.h"

namespace snug::models::decoder {

// `sum` and the weighted loss that balances the experts of all blocks, of which `state` knows. It
// is one loss for the pass's tokens: each term of the objective counts it once.
at::Tensor with_balance(at::Tensor sum, const Config& config, const nn::State& state,
                        const nn::Batch& batch, const nn::Pass& pass);

class Experts {
 public:
  // `block`: the block's number. `layer` begins its weights' names: "model.layers.0."
  Experts(const Config& config, int64_t block, const std::string& layer);

  // x (N, D) -> (N, D); with norms of their own x is what they norm. With expert parallelism
  // experts of other ranks are computed there. Adds to `state` what the loss that balances experts
  // needs to know of this block, if there is one.
  at::Tensor forward(const at::Tensor& x, nn::State& state, const nn::Batch& batch,
                     const nn::Pass& pass) const;
  void list(std::vector<nn::Parameter*>& parameters);
  // Without the router and the shared expert's share: they stay as exact as activations are, and
  // get no adapter.
  void list(std::vector<nn::Linear*>& linears);
  std::vector<std::vector<nn::Parameter*>> parameters_of_each();
  // What the products of experts that a token is not routed to would take, as Model counts them.
  double idle_flops_per_token();

 private:
  struct Expert {
    nn::Linear gate;               // with fused experts gates and behind them ups
    std::optional<nn::Linear> up;  // else
    nn::Linear down;
  };
  // The expert that every token takes; of its output sigmoid(share(x)) is added, or all.
  struct Shared {
    nn::Linear gate, up, down;
    std::optional<nn::Linear> share;  // (1, D)
  };
  template <class Body>
  static void for_each_layer(Expert& expert, const Body& body);
  template <class Body>
  void for_each_layer(const Body& body);

  Expert make_expert(const std::string& name) const;
  // What the router makes of x (N, D).
  ops::Routes routes_of(const at::Tensor& x, const nn::Batch& batch, const nn::Pass& pass) const;
  static std::optional<Shared> shared_expert(const Config& config, const std::string& layer);
  at::Tensor routed(const at::Tensor& x, nn::State& state, const nn::Batch& batch,
                    const nn::Pass& pass) const;
  // Null if this rank has all experts.
  std::optional<ops::ExpertShare> share_of(const nn::Batch& batch) const;

  const Config& config_;
  int64_t block_;
  nn::Linear router_;                         // (num_experts, D)
  std::optional<nn::Parameter> router_bias_;  // (num_experts): ops::Router::bias
  // Of families with normed_experts: before the router and before and after the experts, and the
  // numbers that weights are multiplied by (num_experts, 1).
  std::optional<nn::RmsNorm> router_norm_, before_, after_;
  std::optional<nn::Parameter> expert_scale_;
  std::vector<Expert> experts_;
  std::optional<Shared> shared_;
};

}  // namespace snug::models::decoder
