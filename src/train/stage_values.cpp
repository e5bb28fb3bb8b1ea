// SPDX-License-Identifier: Apache-2.0
#include "train/stage_values.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "core/memory/guards.h"
#include "engine/exec/policies/sharding.h"
#include "engine/export/export.h"
#include "engine/parallel/tensor_parallel.h"

namespace snug::train {
namespace {

// From another stage to the first one, as `type`: there the tensor is new memory for it.
at::Tensor brought(const at::Tensor& value, at::IntArrayRef sizes, int64_t from,
                   at::ScalarType type, const engine::Engine& engine) {
  const auto sender = static_cast<int>(from);
  dist::Group& group = engine.mesh->between_stages(sender, 0);
  const memory::CategoryGuard category(memory::Category::Communication);
  if (engine.stage.index == from) {
    group.wait(group.send(value.to(engine.device, type).contiguous(), 0));
    return value;
  }
  at::Tensor memory = at::empty(sizes, at::TensorOptions().device(engine.device).dtype(type));
  group.wait(group.receive(memory, sender));
  return memory;
}

// What trains is kept as the optimizer sees it: in float32 where masters live on the host. Stages
// that train nothing learn it from the others.
at::ScalarType type_of_trained(const engine::Engine& engine) {
  const std::string own =
      engine.parameters.empty()
          ? ""
          : std::to_string(static_cast<int>(engine.parameters.front().tensor.scalar_type()));
  for (const std::string& type : engine.mesh->world().gather_texts(own))
    if (!type.empty()) return static_cast<at::ScalarType>(std::stoi(type));
  return engine.precision.parameters;
}

bool is_first_or(int64_t stage, const engine::Engine& engine) {
  return engine.stage.index == 0 || engine.stage.index == stage;
}

}  // namespace

GatheredUnit::GatheredUnit(models::Model& model, const engine::Engine& engine, Gathered which)
    : engine_(engine),
      which_(which),
      sent_type_(which == Gathered::Trained && engine.mesh->size(dist::Axis::Pipeline) > 1
                     ? type_of_trained(engine)
                     : engine.precision.parameters),
      units_(model.units()) {}

size_t GatheredUnit::index_here(nn::Unit* unit) const {
  const auto found = std::ranges::find(engine_.units, unit);
  SNUG_CHECK(found != engine_.units.end(), "{} does not belong to this stage", unit->name());
  return static_cast<size_t>(found - engine_.units.begin());
}

void GatheredUnit::open(size_t unit) {
  values_.clear();
  const int64_t stage = engine_.stage.layout.stage_of(static_cast<int64_t>(unit));
  if (!is_first_or(stage, engine_)) return;
  const bool is_here = engine_.stage.index == stage;
  const bool trained_alone = which_ == Gathered::Trained;
  if (is_here && engine_.sharding != nullptr) {
    const size_t here = index_here(units_[unit]);
    trained_alone ? engine_.sharding->open_trained(here) : engine_.sharding->open(here);
  }
  for (const nn::Parameter* parameter : units_[unit]->parameters()) {
    if (trained_alone && !parameter->trained) continue;
    if (is_here && parameter->slice) values_[parameter] = engine::whole_value(*parameter);
    if (stage > 0) bring(*parameter, stage);
  }
}

// Only rank 0 reads: its group of the pipeline axis is enough.
void GatheredUnit::bring(const nn::Parameter& parameter, int64_t from) {
  const dist::MeshShape& shape = engine_.mesh->shape();
  const int ranks_of_stage = shape.num_ranks() / shape[dist::Axis::Pipeline];
  if (engine_.mesh->rank() % ranks_of_stage != 0) return;
  const auto own = values_.find(&parameter);
  const at::Tensor value = own != values_.end()          ? own->second
                           : engine_.stage.index == from ? parameter.kept().detach()
                                                         : at::Tensor();
  const at::Tensor here = brought(value, parameter.whole_shape(), from, sent_type_, engine_);
  if (engine_.stage.index == 0) values_[&parameter] = here;
}

void GatheredUnit::close(size_t unit) {
  values_.clear();
  const int64_t stage = engine_.stage.layout.stage_of(static_cast<int64_t>(unit));
  if (engine_.sharding == nullptr || engine_.stage.index != stage) return;
  const size_t here = index_here(units_[unit]);
  which_ == Gathered::Trained ? engine_.sharding->close_trained(here)
                              : engine_.sharding->close(here);
}

at::Tensor GatheredUnit::read(const nn::Parameter& parameter) const {
  const auto whole = values_.find(&parameter);
  if (which_ == Gathered::Trained)
    return (whole == values_.end() ? parameter.kept().detach() : whole->second).cpu();
  if (whole == values_.end()) return engine::resident_value(parameter);
  return whole->second.to(at::kCPU, engine_.precision.parameters);
}

}  // namespace snug::train
