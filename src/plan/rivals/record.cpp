// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/record.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace snug::plan::rivals {
namespace {

struct Operator : torch::autograd::Node {
  Tensors kept;
  Gradients gradients;

  Tensors apply(Tensors&& of_result) override { return gradients(kept, of_result[0]); }
  void release_variables() override { kept.clear(); }
};

}  // namespace

at::Tensor record(const at::Tensor& result, const Tensors& inputs, const Tensors& kept,
                  Gradients gradients) {
  const auto is_trained = [](const at::Tensor& x) { return x.requires_grad(); };
  if (!at::GradMode::is_enabled() || std::none_of(inputs.begin(), inputs.end(), is_trained))
    return result;
  const auto node = std::shared_ptr<Operator>(new Operator, torch::autograd::deleteNode);
  node->gradients = std::move(gradients);
  for (const at::Tensor& tensor : kept)
    node->kept.push_back(tensor.defined() ? tensor.variable_data() : tensor);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  at::Tensor out = result.variable_data();  // of a view too, nothing but its memory
  torch::autograd::create_gradient_edge(out, node);
  return out;
}

at::Tensor make(const Sizes& sizes, const at::Tensor& like) {
  return at::empty(sizes, like.options());
}

at::Tensor make(const Sizes& sizes, const at::Tensor& like, at::ScalarType type) {
  return at::empty(sizes, like.options().dtype(type));
}

}  // namespace snug::plan::rivals
