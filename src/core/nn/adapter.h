// A low-rank adapter beside a linear layer's weight: LoRA (Hu et al. 2021), with rank-stabilized
// scaling (Kalajdzievski 2023) or DoRA's magnitude (Liu et al. 2024). The formulas are in
// core/ops/linear/projection.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/nn/parameter.h"

namespace snug::nn {

struct AdapterOptions {
  int64_t rank = 8;
  double scaling = 1;      // of B·A: alpha / rank, or alpha / sqrt(rank)
  double dropout = 0;      // on the adapter's input, while training
  bool magnitude = false;  // DoRA
};

struct Adapter {
  AdapterOptions options;
  Parameter a;          // (r, in)
  Parameter b;          // (out, r), starts as zero, so training starts from the base model
  Parameter magnitude;  // (out), DoRA only

  // Parameters are named "<linear>.lora_A.weight", "<linear>.lora_B.weight" and
  // "<linear>.lora_magnitude_vector.weight", as in PEFT.
  Adapter(const std::string& linear, int64_t in_features, int64_t out_features,
          const AdapterOptions& options);

  void list(std::vector<Parameter*>& parameters);
  // Splits the adapter like its layer's weight: B and the magnitude along outputs, A along inputs.
  void cut_as(const Parameter& weight);
};

}  // namespace snug::nn
