// SPDX-License-Identifier: Apache-2.0
#include "plan/layouts.h"

#include <memory>
#include <numeric>

#include "engine/parallel/tensor_parallel.h"
#include "engine/strategy.h"
#include "models/family.h"
#include "recipe/check.h"
#include "recipe/mesh.h"

namespace snug::plan {
namespace {

using recipe::Axis;

std::vector<int64_t> divisors(int64_t whole) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d <= whole; ++d)
    if (whole % d == 0) found.push_back(d);
  return found;
}

// By how many ranks along tp each layer can be shared.
std::vector<int64_t> tensor_sizes(models::Model& model, const recipe::Recipe& recipe) {
  return divisors(std::gcd(engine::common_shares(model), engine::named_ranks_per_node(recipe)));
}

// How the devices that neither tensor nor pipeline takes share their samples.
std::vector<Layout> data_layouts(const recipe::Recipe& recipe, recipe::MeshShape mesh,
                                 int64_t copies) {
  const auto with = [&](recipe::Strategy strategy, int64_t replicate, int64_t shard) -> Layout {
    mesh[Axis::Replicate] = static_cast<int>(replicate);
    mesh[Axis::Shard] = static_cast<int>(shard);
    return {.strategy = strategy, .mesh = recipe::mesh_text(mesh)};
  };
  std::vector<Layout> found{with(recipe::Strategy::Auto, copies, 1)};
  if (copies == 1) return found;
  found.push_back(with(recipe::Strategy::Zero1, 1, copies));
  // Gradients would be summed for each micro-batch of each stage.
  if (mesh[Axis::Pipeline] == 1) found.push_back(with(recipe::Strategy::Zero2, 1, copies));
  found.push_back(with(recipe::Strategy::Fsdp, 1, copies));
  const int64_t on_machine = engine::named_ranks_per_node(recipe) / mesh[Axis::Tensor];
  if (on_machine > 1 && copies > on_machine && copies % on_machine == 0)
    found.push_back(with(recipe::Strategy::Fsdp, copies / on_machine, on_machine));
  return found;
}

bool is_allowed(const recipe::Recipe& recipe, const Layout& layout) {
  recipe::Recipe r = laid_out(recipe, layout);
  // The search chooses it, and the global batch stays.
  r.train.accumulate_grad_batches.reset();
  if (!recipe.given("train.micro_batch_size")) r.train.micro_batch_size = 1;
  return recipe::layout_faults(r).empty();
}

}  // namespace

bool Layout::divides_the_model() const {
  recipe::MeshShape shape;
  return recipe::read_mesh(mesh, shape).empty() && shape[Axis::Pipeline] * shape[Axis::Tensor] > 1;
}

recipe::Recipe laid_out(recipe::Recipe recipe, const Layout& layout) {
  recipe.strategy = layout.strategy;
  recipe.mesh = layout.mesh;
  recipe.pipeline_interleave = layout.interleave;
  return recipe;
}

std::vector<Layout> layouts(const models::Model& model, const recipe::Recipe& recipe) {
  const int64_t ranks = engine::named_ranks(recipe);
  const Layout own{recipe.strategy, recipe.mesh, recipe.pipeline_interleave};
  if (recipe.given("strategy") || !recipe.mesh.empty() || ranks == 1) return {own};
  std::vector<Layout> found;
  const auto add = [&](const Layout& layout) {
    if (is_allowed(recipe, layout)) found.push_back(layout);
  };
  using enum recipe::Strategy;
  for (const recipe::Strategy strategy : {Ddp, Zero1, Zero2, Fsdp, Hybrid})
    if (recipe.num_nodes > 1 || strategy != Hybrid) add({.strategy = strategy});
  const std::unique_ptr<models::Model> whole = models::model_like(model);
  const auto num_units = std::ssize(whole->units());
  for (const int64_t tensor : tensor_sizes(*whole, recipe))
    for (const int64_t stages : divisors(ranks / tensor)) {
      if (tensor * stages == 1 || stages > num_units) continue;
      recipe::MeshShape mesh;
      mesh[Axis::Pipeline] = static_cast<int>(stages);
      mesh[Axis::Tensor] = static_cast<int>(tensor);
      for (Layout layout : data_layouts(recipe, mesh, ranks / (tensor * stages))) {
        add(layout);
        layout.interleave = 2;
        const bool may_interleave = stages > 1 && 2 * stages <= num_units;
        if (may_interleave && !recipe.given("pipeline_interleave")) add(layout);
      }
    }
  return found;
}

}  // namespace snug::plan
