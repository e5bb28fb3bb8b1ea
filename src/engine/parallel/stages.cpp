// SPDX-License-Identifier: Apache-2.0
#include "engine/parallel/stages.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "core/memory/guards.h"
#include "core/nn/linear.h"
#include "core/ops/elementwise.h"
#include "engine/engine.h"
#include "engine/parallel/state_shapes.h"
#include "engine/strategy.h"

namespace snug::engine {
namespace {

using dist::Axis;

// Owns this stage's copy of another stage's parameter and passes its input through. It comes before
// the unit that borrows the copy.
class CommonOwner final : public nn::Unit {
 public:
  CommonOwner(const std::string& name, std::vector<nn::Parameter*> parameters)
      : Unit(name, nn::UnitKind::Embedding), parameters_(std::move(parameters)) {}
  nn::State forward(const nn::State& input, const nn::Batch& /*batch*/,
                    const nn::Pass& /*pass*/) override {
    return input;
  }
  std::vector<nn::Parameter*> parameters() override { return parameters_; }

 private:
  std::vector<nn::Parameter*> parameters_;
};

// Cost of a split into consecutive places: the largest work of a place, then unevenness.
using Cost = std::pair<double, double>;

std::vector<CommonParameter> common_parameters(const std::vector<nn::Unit*>& units,
                                               const StageLayout& layout) {
  std::vector<CommonParameter> all;
  for (int64_t owner = 0; owner < std::ssize(units); ++owner)
    for (nn::Parameter* parameter : units[static_cast<size_t>(owner)]->parameters()) {
      CommonParameter common{parameter, {layout.stage_of(owner)}};
      for (int64_t user = 0; user < std::ssize(units); ++user) {
        const auto borrowed = units[static_cast<size_t>(user)]->borrowed();
        const int64_t stage = layout.stage_of(user);
        if (std::ranges::find(borrowed, parameter) != borrowed.end() &&
            std::ranges::find(common.stages, stage) == common.stages.end())
          common.stages.push_back(stage);
      }
      if (common.stages.size() > 1) all.push_back(std::move(common));
    }
  return all;
}

bool trains(nn::Unit& unit) {
  const auto parameters = unit.parameters();
  return std::ranges::any_of(parameters, [](const auto* parameter) { return parameter->trained; });
}

void check_common(const std::vector<CommonParameter>& common, const recipe::Recipe& recipe) {
  for (const CommonParameter& c : common) {
    if (!c.parameter->trained) continue;
    if (recipe.optimizer.stochastic_rounding)
      throw UserError(
          "optimizer.stochastic_rounding = true: {} is on {} stages of the pipeline, and each "
          "would round it differently; use optimizer.master_weights",
          c.parameter->name, c.stages.size());
  }
}

// Makes the owner, before `unit`, of copies that this and later units borrow from other stages.
std::unique_ptr<nn::Unit> owner_before(nn::Unit& unit, const Stage& stage,
                                       std::vector<const nn::Parameter*>& owned,
                                       const std::vector<nn::Unit*>& all) {
  std::vector<nn::Parameter*> copies;
  std::string name;
  for (nn::Parameter* parameter : unit.borrowed()) {
    if (!stage.is_counted_elsewhere(*parameter)) continue;  // the owner is on this stage
    if (std::ranges::find(owned, parameter) != owned.end()) continue;
    owned.push_back(parameter);
    copies.push_back(parameter);
    for (nn::Unit* other : all) {
      const auto own = other->parameters();
      if (std::ranges::find(own, parameter) != own.end()) name = other->name();
    }
  }
  if (copies.empty()) return nullptr;
  return std::make_unique<CommonOwner>(name, std::move(copies));
}

}  // namespace

int64_t StageLayout::place_of(int64_t unit) const {
  return std::upper_bound(begins.begin(), begins.end() - 1, unit) - begins.begin() - 1;
}

StageLayout deal_units(const std::vector<nn::Unit*>& units, int64_t stages, int64_t chunks) {
  const auto count = std::ssize(units);
  const int64_t places = stages * chunks;
  if (count < places)
    throw UserError(
        "mesh pp={}{}: splits the model into {} ranges of layers, but it has only {} units; use "
        "fewer",
        stages, chunks > 1 ? fmt::format(" with pipeline_interleave = {}", chunks) : "", places,
        count);
  std::vector<double> before{0};  // prefix sums of the units' work
  for (nn::Unit* unit : units) before.push_back(before.back() + work_of(*unit));
  // best[p][n]: lowest cost of the first n units in p places; from[p][n]: first unit of the last
  // place.
  const Cost worst{std::numeric_limits<double>::infinity(), 0};
  const auto rows = static_cast<size_t>(places) + 1, columns = static_cast<size_t>(count) + 1;
  std::vector<std::vector<Cost>> best(rows, std::vector<Cost>(columns, worst));
  std::vector<std::vector<size_t>> from(rows, std::vector<size_t>(columns, 0));
  best[0][0] = {0, 0};
  for (size_t p = 1; p < rows; ++p)
    for (size_t n = p; n < columns; ++n)
      for (size_t begin = p - 1; begin < n; ++begin) {
        const double work = before[n] - before[begin];
        const Cost cost{std::max(best[p - 1][begin].first, work),
                        best[p - 1][begin].second + work * work};
        if (cost < best[p][n]) {
          best[p][n] = cost;
          from[p][n] = begin;
        }
      }
  StageLayout layout{.stages = stages, .chunks = chunks, .begins = {count}};
  for (size_t p = rows - 1, n = columns - 1; p > 0; --p) {
    n = from[p][n];
    layout.begins.insert(layout.begins.begin(), static_cast<int64_t>(n));
  }
  return layout;
}

bool Stage::is_common(const nn::Parameter& parameter) const {
  return std::ranges::any_of(common, [&](const auto& c) { return c.parameter == &parameter; });
}

bool Stage::is_counted_elsewhere(const nn::Parameter& parameter) const {
  return std::ranges::any_of(common, [&](const auto& c) {
    return c.parameter == &parameter && c.stages.front() != index;
  });
}

Stage make_stage(models::Model& model, const recipe::Recipe& recipe, const dist::Mesh& mesh) {
  const std::vector<nn::Unit*> all = model.units();
  const int64_t stages = mesh.size(Axis::Pipeline);
  const int64_t chunks = stages > 1 ? recipe.pipeline_interleave : 1;
  Stage stage{.layout = deal_units(all, stages, chunks), .index = mesh.coordinate(Axis::Pipeline)};
  stage.common = common_parameters(all, stage.layout);
  check_common(stage.common, recipe);
  const auto first = std::ranges::find_if(all, [](nn::Unit* unit) { return trains(*unit); });
  const int64_t first_trained = std::min<int64_t>(first - all.begin(), std::ssize(all) - 1);
  stage.first_trained_place = stage.layout.place_of(first_trained);
  for (const nn::Unit* unit : all) stage.kinds.push_back(unit->kind());
  std::vector<const nn::Parameter*> owned;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const auto place = static_cast<size_t>(chunk * stages + stage.index);
    const int64_t begin = stage.layout.begins[place], end = stage.layout.begins[place + 1];
    exec::UnitRange range{.begin = std::ssize(stage.units),
                          .begins_model = begin == 0,
                          .ends_model = end == std::ssize(all),
                          .gradient_leaves = first_trained < begin};
    for (int64_t i = begin; i < end; ++i) {
      nn::Unit* unit = all[static_cast<size_t>(i)];
      if (auto owner = owner_before(*unit, stage, owned, all)) {
        stage.units.push_back(owner.get());
        stage.positions.push_back(-1);
        stage.added.push_back(std::move(owner));
      }
      stage.units.push_back(unit);
      stage.positions.push_back(i);
    }
    range.end = std::ssize(stage.units);
    stage.ranges.push_back(range);
  }
  return stage;
}

std::unique_ptr<exec::StageLinks> make_links(const models::Model& model,
                                             const recipe::Recipe& recipe, const Engine& engine) {
  if (engine.mesh->size(Axis::Pipeline) == 1) return nullptr;
  return std::make_unique<exec::StageLinks>(
      engine.mesh, engine.device,
      exec::StageLinks::Options{
          .order = pipeline_order(recipe),
          .chunks = engine.stage.layout.chunks,
          .first_trained_place = engine.stage.first_trained_place,
          .vocabulary = model.dimensions().vocabulary,
          .shapes = state_shapes(model, recipe, engine.stage.layout, *engine.mesh)});
}

namespace {

// `sum`: this stage's gradient; on return the sum over stages.
void add_up(const at::Tensor& sum, const CommonParameter& common, const Engine& engine) {
  const memory::CategoryGuard category(memory::Category::Communication);
  const auto own = static_cast<int>(engine.stage.index);
  const auto owner = static_cast<int>(common.stages.front());
  const auto group = [&](int64_t from, int64_t to) -> dist::Group& {
    return engine.mesh->between_stages(static_cast<int>(from), static_cast<int>(to));
  };
  if (own != owner) {
    group(own, owner).wait(group(own, owner).send(sum, owner));
    group(owner, own).wait(group(owner, own).receive(sum, owner));
    return;
  }
  for (size_t i = 1; i < common.stages.size(); ++i) {
    const auto other = static_cast<int>(common.stages[i]);
    const at::Tensor theirs = at::empty_like(sum);
    group(other, own).wait(group(other, own).receive(theirs, other));
    ops::accumulate(sum, theirs);
  }
  for (size_t i = 1; i < common.stages.size(); ++i) {
    const auto other = static_cast<int>(common.stages[i]);
    group(own, other).wait(group(own, other).send(sum, other));
  }
}

}  // namespace

void add_up_common_gradients(const Engine& engine) {
  for (const CommonParameter& common : engine.stage.common) {
    const bool is_here =
        std::ranges::find(common.stages, engine.stage.index) != common.stages.end();
    if (!is_here || !common.parameter->trained) continue;
    for (const optim::NamedTensor& own : engine.parameters) {
      if (own.name != common.parameter->name) continue;
      const at::Tensor& gradient = own.tensor.grad();
      SNUG_CHECK(gradient.defined(), "{} has no gradient", own.name);
      const memory::UnitGuard unit(memory::unit_id(own.name));
      // Gradients in host memory are sent by way of the device.
      if (gradient.device() == engine.device) {
        add_up(gradient, common, engine);
        continue;
      }
      const at::Tensor sum = gradient.to(engine.device);
      add_up(sum, common, engine);
      gradient.detach().copy_(sum);
    }
  }
}

double work_of(nn::Unit& unit) {
  double work = 1;
  for (const nn::Linear* linear : unit.linears())
    work +=
        static_cast<double>(linear->in_features()) * static_cast<double>(linear->out_features());
  return work;
}

double most_of_a_stage(const std::vector<nn::Unit*>& units, const StageLayout& layout) {
  std::vector<double> by_stage(static_cast<size_t>(layout.stages));
  for (size_t i = 0; i < units.size(); ++i)
    by_stage[static_cast<size_t>(layout.stage_of(static_cast<int64_t>(i)))] += work_of(*units[i]);
  const double all = std::accumulate(by_stage.begin(), by_stage.end(), 0.0);
  return *std::max_element(by_stage.begin(), by_stage.end()) * static_cast<double>(layout.stages) /
         all;
}

}  // namespace snug::engine
