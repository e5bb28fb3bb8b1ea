// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tanh.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/memory/guards.h"
#include "plan/rivals/operators.h"

namespace snug::plan::rivals {

at::Tensor Model::forward() {
  order_.clear();
  if (modules_.is_sharded()) modules_.flat(0).gather();
  at::Tensor result = loss();
  finish_gathers();
  modules_.drop_weight_casts();
  return result;
}

void Model::finish_gathers() {
  for (const size_t unit : gathered_) modules_.flat(unit).release();
  gathered_.clear();
}

void Model::mark_unit(const at::Tensor& output, int32_t unit) {
  if (!output.requires_grad()) return;
  output.register_hook([unit](const at::Tensor&) { memory::current_tag.unit = unit; });
}

at::Tensor Model::run_block(size_t unit, const std::string& name,
                            const std::vector<at::Tensor>& inputs, TensorModule module) {
  const int32_t id = memory::unit_id(name);
  const memory::UnitGuard guard(id);
  TensorModule marked = [this, unit, id,
                         module = std::move(module)](const std::vector<at::Tensor>& given) {
    const memory::UnitGuard again(id);
    if (unit != 0) modules_.flat(unit).gather();
    const at::Tensor out = module(given);
    mark_unit(out, id);
    return out;
  };
  const bool has_graph = std::any_of(inputs.begin(), inputs.end(), [](const at::Tensor& x) {
    return x.defined() && x.requires_grad();
  });
  const at::Tensor out =
      options_.checkpointing && has_graph ? recomputed(inputs, std::move(marked)) : marked(inputs);
  if (unit == 0) return out;
  // The next unit's weights are gathered while this one runs: two are there at a time.
  gathered_.push_back(unit);
  if (gathered_.size() > 1) {
    modules_.flat(gathered_.front()).release();
    gathered_.erase(gathered_.begin());
  }
  order_.push_back(unit);
  const size_t before = order_.size() > 1 ? order_[order_.size() - 2] : unit;
  if (out.requires_grad())
    out.register_hook([this, unit, before](const at::Tensor&) {
      modules_.flat(unit).gather();
      modules_.flat(before).gather();
    });
  return out;
}

at::Tensor Model::drop(const at::Tensor& x, double probability) {
  return probability > 0 ? dropout(x) : x;
}

at::Tensor Model::split_heads(const at::Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

at::Tensor Model::join_heads(const at::Tensor& x) {
  return x.transpose(1, 2).contiguous().view({x.size(0), x.size(2), x.size(1) * x.size(3)});
}

// Numbers do not matter, shapes do. Powers are float32 under autocast.
at::Tensor Model::tanh_gelu(const at::Tensor& x) const {
  const at::Tensor cube = (modules_.autocast() ? x.to(at::kFloat) : x).pow(3.0);
  const at::Tensor inner = at::tanh((x + cube * 0.044715) * 0.5);
  return x * 0.5 * (inner + 1.0);
}

int64_t Model::number(const nlohmann::json& config, const char* key, int64_t fallback) {
  return config.contains(key) && config.at(key).is_number() ? config.at(key).get<int64_t>()
                                                            : fallback;
}

at::Tensor Model::new_ids(int64_t rows, int64_t columns) {
  const memory::CategoryGuard category(memory::Category::Data);
  return at::empty({rows, columns}, at::TensorOptions(at::kMeta).dtype(at::kLong));
}

}  // namespace snug::plan::rivals
