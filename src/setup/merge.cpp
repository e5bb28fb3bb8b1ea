// SPDX-License-Identifier: Apache-2.0
#include "setup/merge.h"

#include <algorithm>
#include <string>

#include "setup/adapters.h"

namespace snug::setup {
namespace {

const std::string kWeight = ".weight";

// Where the base keeps a parameter of the merged model: for a head that the base shares with its
// embedding, there.
const nn::Parameter& stored(const models::Checkpoint& base, const nn::Parameter& parameter) {
  for (const nn::Linear* linear : linears_of(*base.model))
    if (linear->is_tied() && parameter.name == linear->name() + kWeight) return linear->weight();
  return parameter;
}

// A parameter before merging: the adapter's copy of it, if it brings one, or else the base's.
at::Tensor unmerged(const models::Checkpoint& base, const checkpoint::Adapter& adapter,
                    const nn::Parameter& parameter, at::ScalarType type) {
  const auto own = adapter.base_weights.find(parameter.name);
  if (own != adapter.base_weights.end())
    return own->second.to(type, /*non_blocking=*/false, /*copy=*/true);
  return models::read_parameter(base, stored(base, parameter), type);
}

}  // namespace

void fold_in(const at::Tensor& weight, const checkpoint::ModuleAdapter& adapter) {
  const at::Tensor a = adapter.a.to(at::kFloat), b = adapter.b.to(at::kFloat);
  weight.addmm_(b, a, /*beta=*/1, /*alpha=*/adapter.scaling);
  if (!adapter.magnitude.defined()) return;
  const at::Tensor lengths = weight.norm(2, /*dim=*/{1});
  weight.mul_(adapter.magnitude.to(at::kFloat).div(lengths).unsqueeze(1));
}

bool parts_head(const models::Checkpoint& base, const checkpoint::Adapter& adapter) {
  return std::ranges::any_of(linears_of(*base.model), [&](const nn::Linear* linear) {
    return linear->is_tied() && (adapter.modules.contains(linear->name()) ||
                                 adapter.base_weights.contains(linear->name() + kWeight));
  });
}

ParameterReader merged_reader(const models::Checkpoint& base, const checkpoint::Adapter& adapter,
                              at::ScalarType type) {
  return [&base, &adapter, type](const nn::Parameter& parameter) {
    const std::string module = parameter.name.substr(0, parameter.name.rfind('.'));
    const auto found = adapter.modules.find(module);
    const bool merges = found != adapter.modules.end() && parameter.name == module + kWeight;
    at::Tensor value = unmerged(base, adapter, parameter, merges ? at::kFloat : type);
    if (merges) fold_in(value, found->second);
    return value;
  };
}

}  // namespace snug::setup
