// SPDX-License-Identifier: Apache-2.0
#include "setup/state_shapes.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <memory>

#include "memory/disk_file.h"
#include "memory/guards.h"
#include "models/family.h"
#include "nn/precision.h"
#include "setup/tensor_parallel.h"

namespace snug::setup {
namespace {

at::Tensor on_meta(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return at::empty(tensor.sizes(), tensor.options().device(at::kMeta));
}

nn::Batch on_meta(const nn::Batch& batch) {
  nn::Batch result = batch;
  result.cache = nullptr;
  for (at::Tensor* tensor : {&result.input_ids, &result.targets, &result.positions,
                             &result.cu_seqlens, &result.pixels, &result.picture_rows})
    *tensor = on_meta(*tensor);
  if (result.source)
    for (at::Tensor* tensor :
         {&result.source->input_ids, &result.source->positions, &result.source->cu_seqlens})
      *tensor = on_meta(*tensor);
  return result;
}

class Twin {
 public:
  Twin(const models::Model& model, const config::Recipe& recipe, const StageLayout& layout,
       const dist::Mesh& mesh)
      : layout_(layout), mesh_(dist::planned_mesh(mesh.shape(), mesh.rank())) {
    const memory::DiskGuard apart(&apart_);
    model_ = models::model_like(model);
    cut_tensors(*model_, recipe, mesh_->group(dist::Axis::Tensor));
    const at::ScalarType type = nn::parse_precision(recipe.precision).parameters;
    for (nn::Parameter* parameter : model_->parameters()) {
      parameter->allocate(at::kMeta, type);
      parameter->value.set_requires_grad(false);
    }
  }

  std::vector<nn::State> shapes(const exec::MicroBatch& micro_batch) {
    const at::NoGradGuard no_gradients;
    const memory::DiskGuard apart(&apart_);
    const nn::Batch batch = on_meta(micro_batch.batch);
    const nn::Pass pass{.compute = micro_batch.pass.compute};
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
  memory::DiskFile
      apart_;  // no file: what lies there counts neither as the device's nor the host's
  std::unique_ptr<models::Model> model_;
};

}  // namespace

std::function<std::vector<nn::State>(const exec::MicroBatch&)> state_shapes(
    const models::Model& model, const config::Recipe& recipe, const StageLayout& layout,
    const dist::Mesh& mesh) {
  return [&model, recipe, layout, &mesh,
          twin = std::shared_ptr<Twin>()](const exec::MicroBatch& micro_batch) mutable {
    if (twin == nullptr) twin = std::make_shared<Twin>(model, recipe, layout, mesh);
    return twin->shapes(micro_batch);
  };
}

}  // namespace snug::setup
