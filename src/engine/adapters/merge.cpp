// SPDX-License-Identifier: Apache-2.0
#include "engine/adapters/merge.h"

#include <ATen/ops/equal.h>

#include <algorithm>

#include "core/ops/linear/stored_weight.h"
#include "engine/adapters/adapters.h"

namespace snug::engine {
namespace {

const std::string kWeightSuffix = ".weight";

// The base's linear layers by the name of their weight; a tied head has a name of its own.
std::map<std::string, const nn::Linear*> layers_of(const models::Checkpoint& base) {
  std::map<std::string, const nn::Linear*> layers;
  for (const nn::Linear* linear : linears_of(*base.model))
    layers[linear->name() + kWeightSuffix] = linear;
  return layers;
}

// The base's value, quantized and dequantized if it is marked so.
at::Tensor base_value(const models::Checkpoint& base, const nn::Parameter& parameter,
                      at::ScalarType type) {
  if (!parameter.quantization) return models::read_parameter(base, parameter, type);
  const nn::Quantization& q = *parameter.quantization;
  const auto bits = ops::quantize(models::read_parameter(base, parameter, q.source), q.format);
  return ops::dequantize(bits, q.source).to(type);
}

}  // namespace

void fold_in(const at::Tensor& weight, const checkpoint::ModuleAdapter& adapter) {
  const at::Tensor a = adapter.a.to(at::kFloat), b = adapter.b.to(at::kFloat);
  weight.addmm_(b, a, /*beta=*/1, /*alpha=*/adapter.scaling);
  if (!adapter.magnitude.defined()) return;
  const at::Tensor lengths = weight.norm(2, /*dim=*/{1});
  weight.mul_(adapter.magnitude.to(at::kFloat).div(lengths).unsqueeze(1));
}

// peft gives the embedding a copy of its own to train, and the head keeps the base's.
bool parts_head(const models::Checkpoint& base, const checkpoint::Adapter& adapter) {
  return std::ranges::any_of(linears_of(*base.model), [&](const nn::Linear* linear) {
    if (!linear->is_tied()) return false;
    if (adapter.modules.contains(linear->name())) return true;
    const auto head = adapter.base_weights.find(linear->name() + kWeightSuffix);
    const auto table = adapter.base_weights.find(linear->weight().name);
    const auto none = adapter.base_weights.end();
    if (head != none) return table == none || !at::equal(head->second, table->second);
    return table != none &&
           !at::equal(models::read_parameter(base, linear->weight(), table->second.scalar_type()),
                      table->second);
  });
}

std::map<std::string, at::Tensor> changed_base_weights(const models::Checkpoint& base,
                                                       const checkpoint::Adapter& adapter) {
  std::map<std::string, at::Tensor> changed;
  const auto look = [&](const std::string& name, const nn::Parameter& parameter) {
    const auto found = adapter.base_weights.find(name);
    if (found == adapter.base_weights.end()) return;
    const at::Tensor& value = found->second;
    if (base.draws(parameter) ||
        !at::equal(models::read_parameter(base, parameter, value.scalar_type()), value))
      changed[name] = value;
  };
  for (const nn::Parameter* parameter : base.model->parameters()) look(parameter->name, *parameter);
  for (const nn::Linear* linear : linears_of(*base.model))
    if (linear->is_tied()) look(linear->name() + kWeightSuffix, linear->weight());
  return changed;
}

ParameterReader merged_reader(const models::Checkpoint& base, const checkpoint::Adapter& adapter,
                              at::ScalarType type) {
  return [&base, &adapter, type, layers = layers_of(base)](const nn::Parameter& parameter) {
    const auto layer = layers.find(parameter.name);
    const bool is_layer = layer != layers.end();
    const auto added =
        is_layer ? adapter.modules.find(layer->second->name()) : adapter.modules.end();
    const bool merges = added != adapter.modules.end();
    const at::ScalarType exact = merges ? at::kFloat : type;
    const auto own = adapter.base_weights.find(parameter.name);
    const at::Tensor value =
        own != adapter.base_weights.end()
            ? own->second.to(exact, /*non_blocking=*/false, /*copy=*/true)
            : base_value(base, is_layer ? layer->second->weight() : parameter, exact);
    if (merges) fold_in(value, added->second);
    return value;
  };
}

}  // namespace snug::engine
