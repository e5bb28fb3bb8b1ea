// SPDX-License-Identifier: Apache-2.0
#include "core/nn/adapter.h"

#include <cmath>

namespace snug::nn {

// A starts like torch.nn.Linear, uniform within ±1 / sqrt(in), as in LitGPT and PEFT.
Adapter::Adapter(const std::string& linear, int64_t in_features, int64_t out_features,
                 const AdapterOptions& o)
    : options(o),
      a{.name = linear + ".lora_A.weight",
        .shape = {o.rank, in_features},
        .role = ParameterRole::AdapterA,
        .init = Init::Uniform,
        .init_scale = 1 / std::sqrt(static_cast<double>(in_features))},
      b{.name = linear + ".lora_B.weight",
        .shape = {out_features, o.rank},
        .role = ParameterRole::AdapterB,
        .init = Init::Zeros},
      magnitude{.name = linear + ".lora_magnitude_vector.weight",
                .shape = {out_features},
                .role = ParameterRole::AdapterMagnitude,
                .init = Init::Ones} {}

void Adapter::list(std::vector<Parameter*>& parameters) {
  parameters.push_back(&a);
  parameters.push_back(&b);
  if (options.magnitude) parameters.push_back(&magnitude);
}

void Adapter::cut_as(const Parameter& weight) {
  if (weight.belongs_to_expert()) {
    for (Parameter* parameter : {&a, &b, &magnitude})
      parameter->place(weight.share, *weight.slice->owner);
    return;
  }
  std::optional<Split> outputs, inputs;
  if (weight.slice && weight.slice->dim == 0) outputs = by_rows(weight.slice->sections);
  if (weight.slice && weight.slice->dim == 1) inputs = by_columns();
  a.cut(weight.share, inputs);
  b.cut(weight.share, outputs);
  magnitude.cut(weight.share, outputs);
}

}  // namespace snug::nn
