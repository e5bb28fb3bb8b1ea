// SPDX-License-Identifier: Apache-2.0
#include "setup/merge.h"

#include "base/error.h"
#include "setup/adapter_directory.h"

namespace snug::setup {
namespace {

// The weight that `name` has before merging: the adapter's copy of it, the base's, or, for the head
// of a base that has none, the embedding that serves as one.
at::Tensor unmerged(const models::Checkpoint& base, const checkpoint::Adapter& adapter,
                    const nn::Parameter& parameter, at::ScalarType type) {
  const auto own = adapter.base_weights.find(parameter.name);
  if (own != adapter.base_weights.end())
    return own->second.to(type, /*non_blocking=*/false, /*copy=*/true);
  const std::string module = parameter.name.substr(0, parameter.name.rfind('.'));
  const auto modules = adaptable_modules(*base.model);
  const auto known = modules.find(module);
  const nn::Parameter& stored = known == modules.end() ? parameter : *known->second;
  return models::read_parameter(base, stored, type);
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
  for (const auto& [module, weight] : adaptable_modules(*base.model)) {
    const std::string name = module + ".weight";
    const bool changes = adapter.modules.contains(module) || adapter.base_weights.contains(name);
    if (changes && weight->name != name) return true;
  }
  return false;
}

ParameterReader merged_reader(const models::Checkpoint& base, const checkpoint::Adapter& adapter,
                              at::ScalarType type) {
  return [&base, &adapter, type](const nn::Parameter& parameter) {
    const std::string module = parameter.name.substr(0, parameter.name.rfind('.'));
    const auto found = adapter.modules.find(module);
    const bool merges = found != adapter.modules.end() && parameter.name == module + ".weight";
    at::Tensor value = unmerged(base, adapter, parameter, merges ? at::kFloat : type);
    if (merges) fold_in(value, found->second);
    return value;
  };
}

}  // namespace snug::setup
