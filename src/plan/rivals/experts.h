// A mixture of experts as transformers 5 computes it (`experts_implementation: grouped_mm`, its
// default from 5.0 on): each token once for every expert that it is routed to, sorted by expert,
// through one grouped product for gate and up and one for down. How many tokens an expert gets
// changes nothing. Earlier versions ran one expert after another.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "models/decoder/config.h"
#include "plan/rivals/modules.h"

namespace snug::plan::rivals {

class Experts {
 public:
  // Neither the router nor the experts are layers to peft and bitsandbytes: they have no adapters
  // and are not quantized.
  Experts(const models::decoder::Config& config, Modules& modules);

  // x (B, T, D), normed -> the same
  at::Tensor forward(const at::Tensor& x) const;

 private:
  struct Routes {
    at::Tensor experts, weights;  // (N, experts of a token)
  };
  Routes routes(const at::Tensor& x) const;

  const models::decoder::Config& config_;
  Modules& modules_;
  Modules::Linear router_;
  at::Tensor *gate_up_, *down_;  // (experts, 2 I, D) and (experts, D, I)
};

}  // namespace snug::plan::rivals
