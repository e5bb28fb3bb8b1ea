// SPDX-License-Identifier: Apache-2.0
#include "plan/litgpt_devices.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <numeric>
#include <utility>

#include "memory/guards.h"
#include "memory/placement.h"

namespace snug::plan {
namespace {

using memory::Category;

// Runs a module again when its output's gradient is there.
struct Recompute : torch::autograd::Node {
  std::function<at::Tensor(const at::Tensor&)> module;
  at::Tensor input;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::AutoGradMode mode(true);
    at::Tensor x = input.detach();
    x.set_requires_grad(true);
    torch::autograd::backward({module(x)}, {gradients[0]});
    return {x.grad()};
  }
  void release_variables() override { input.reset(); }
};

}  // namespace

struct FlatWeights::Hook : torch::autograd::PostAccumulateGradHook {
  explicit Hook(FlatWeights& weights) : owner(weights) {}
  void operator()(const torch::autograd::Variable& /*flat*/) override { owner.reduce(); }
  FlatWeights& owner;
};

FlatWeights::FlatWeights(std::vector<at::Tensor*> slots, int64_t ranks) : slots_(std::move(slots)) {
  const memory::CategoryGuard category(Category::Parameters);
  const at::TensorOptions options = slots_.front()->options().requires_grad(false);
  for (at::Tensor* slot : slots_) {
    sizes_.push_back(slot->sizes().vec());
    counts_.push_back(slot->numel());
    slot->reset();
  }
  const int64_t sum = std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
  const int64_t part = (sum + ranks - 1) / ranks;
  part_ = at::empty({part}, options);
  flat_ = at::empty({part * ranks}, options);
  memory::vacate(flat_);
  flat_.set_requires_grad(true);
  if (part * ranks > sum) counts_.push_back(part * ranks - sum);
  torch::autograd::impl::set_post_acc_grad_hooks(flat_, std::make_unique<Hook>(*this));
}

FlatWeights::~FlatWeights() { torch::autograd::impl::set_post_acc_grad_hooks(flat_, nullptr); }

void FlatWeights::gather() {
  if (memory::is_vacant(flat_)) memory::refill(flat_, Category::Parameters);
  const std::vector<at::Tensor> pieces = flat_.split_with_sizes(counts_);
  for (size_t i = 0; i < slots_.size(); ++i) {
    *slots_[i] = pieces[i].view(sizes_[i]);
    if (!slots_[i]->requires_grad()) continue;
    slots_[i]->register_hook(
        [](const at::Tensor& gradient) { memory::retag(gradient, Category::Gradients); });
  }
}

void FlatWeights::release() {
  if (!memory::is_vacant(flat_)) memory::vacate(flat_);
}

void FlatWeights::reduce() {
  memory::retag(flat_.grad(), Category::Gradients);
  release();
  const at::Tensor reduced = [&] {
    const memory::CategoryGuard category(Category::Gradients);
    return at::empty_like(part_);
  }();
  flat_.mutable_grad().reset();
  if (!part_.grad().defined()) part_.mutable_grad() = reduced;
}

at::Tensor recomputed(const at::Tensor& x, std::function<at::Tensor(const at::Tensor&)> module) {
  const auto node = std::shared_ptr<Recompute>(new Recompute, torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(x));
  node->input = x.detach();
  at::Tensor out;
  {
    const at::NoGradGuard no_grad;
    out = module(x);
  }
  node->module = std::move(module);
  torch::autograd::create_gradient_edge(out, node);
  return out;
}

}  // namespace snug::plan
