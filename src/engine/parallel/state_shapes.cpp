// SPDX-License-Identifier: Apache-2.0
#include "engine/parallel/state_shapes.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <memory>
#include <optional>

#include "core/memory/disk_file.h"
#include "core/memory/guards.h"
#include "core/nn/kv_cache.h"
#include "core/nn/precision.h"
#include "engine/parallel/tensor_parallel.h"
#include "models/family.h"

namespace snug::engine {
namespace {

at::Tensor on_meta(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return at::empty(tensor.sizes(), tensor.options().device(at::kMeta));
}

ops::Borders on_meta(const ops::Borders& borders) {
  return borders.with(on_meta(static_cast<const at::Tensor&>(borders)));
}

nn::Batch on_meta(const nn::Batch& batch, const dist::Mesh& mesh) {
  nn::Batch result = batch;
  result.cache = nullptr;
  nn::for_each_tensor(result, [](auto& tensor) { tensor = on_meta(tensor); });
  result.upload.reset();
  if (!result.context) return result;
  result.context->group = &mesh.group(dist::Axis::Context);
  result.context->reversed = &mesh.context_reversed();
  return result;
}

// A cache for the decoder of an encoder-decoder model when the batch has no source. The lengths of
// sequences and source do not affect the shapes of the states.
nn::KvCache cache_of_any_source(const models::Dimensions& model, int64_t ranks, int64_t sequences,
                                at::ScalarType type) {
  nn::KvCache cache(/*capacity=*/1, sequences);
  const auto options = at::TensorOptions().device(at::kMeta);
  const at::Tensor keys =
      at::empty({sequences, model.num_kv_heads / ranks, model.head_dim}, options.dtype(type));
  const at::Tensor borders = at::empty({sequences + 1}, options.dtype(at::kInt));
  for (int64_t layer = 0; layer < model.num_layers; ++layer)
    cache.keep_source(layer,
                      {.keys = keys, .values = keys, .cu_seqlens = borders, .max_seqlen = 1});
  return cache;
}

class Twin {
 public:
  Twin(const models::Model& model, const recipe::Recipe& recipe, const StageLayout& layout,
       const dist::Mesh& mesh)
      : layout_(layout), mesh_(dist::planned_mesh(mesh.shape(), mesh.rank())) {
    const memory::DiskGuard apart(&apart_);
    model_ = models::model_like(model);
    cut_tensors(*model_, recipe, *mesh_);
    const at::ScalarType type = nn::parse_precision(recipe.precision).parameters;
    for (nn::Parameter* parameter : model_->parameters()) {
      parameter->allocate(at::kMeta, type);
      parameter->value.set_requires_grad(false);
    }
  }

  std::vector<nn::State> shapes(const exec::MicroBatch& micro_batch) {
    const at::NoGradGuard no_gradients;
    const memory::DiskGuard apart(&apart_);
    nn::Batch batch = on_meta(micro_batch.batch, *mesh_);
    const nn::Pass pass{.compute = micro_batch.pass.compute,
                        .objective = micro_batch.pass.objective};
    std::optional<nn::KvCache> cache;
    if (micro_batch.batch.cache != nullptr && model_->reads().source && !batch.source)
      batch.cache = &cache.emplace(
          cache_of_any_source(model_->dimensions(), mesh_->size(dist::Axis::Tensor),
                              micro_batch.batch.cache->num_sequences(), pass.compute));
    const std::vector<nn::Unit*> units = model_->units();
    std::vector<nn::State> states(1);
    nn::State state;
    for (size_t place = 1; place + 1 < layout_.begins.size(); ++place) {
      for (int64_t i = layout_.begins[place - 1]; i < layout_.begins[place]; ++i)
        state = units[static_cast<size_t>(i)]->forward(state, batch, pass);
      states.push_back(state);
    }
    return states;
  }

 private:
  StageLayout layout_;
  std::shared_ptr<dist::Mesh> mesh_;
  memory::DiskFile apart_;  // without a file: its allocations count for neither device nor host
  std::unique_ptr<models::Model> model_;
};

}  // namespace

std::function<std::vector<nn::State>(const exec::MicroBatch&)> state_shapes(
    const models::Model& model, const recipe::Recipe& recipe, const StageLayout& layout,
    const dist::Mesh& mesh) {
  return [&model, recipe, layout, &mesh,
          twin = std::shared_ptr<Twin>()](const exec::MicroBatch& micro_batch) mutable {
    if (twin == nullptr) twin = std::make_shared<Twin>(model, recipe, layout, mesh);
    return twin->shapes(micro_batch);
  };
}

}  // namespace snug::engine
