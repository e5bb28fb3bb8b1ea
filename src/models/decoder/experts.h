// A block's mixture of experts: a router, and gated MLPs of which each token takes the few that the
// router gives it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/nn/linear.h"
#include "core/nn/unit.h"
#include "models/decoder/config.h"

namespace snug::models::decoder {

class Experts {
 public:
  // `layer`: "model.layers.0."
  Experts(const Config& config, const std::string& layer);

  // (N, D) -> (N, D)
  at::Tensor forward(const at::Tensor& x, const nn::Pass& pass) const;
  void list(std::vector<nn::Parameter*>& parameters);
  // Without the router: it stays as exact as activations are, and gets no adapter.
  void list(std::vector<nn::Linear*>& linears);
  // What the products of experts that a token is not routed to would take, as Model counts them.
  double idle_flops_per_token();

 private:
  struct Expert {
    nn::Linear gate;               // with fused experts gates and behind them ups
    std::optional<nn::Linear> up;  // else
    nn::Linear down;
  };
  template <class Body>
  void for_each_layer(const Body& body);

  Expert make_expert(const std::string& name) const;

  const Config& config_;
  nn::Linear router_;  // (num_experts, D)
  std::vector<Expert> experts_;
};

}  // namespace snug::models::decoder
