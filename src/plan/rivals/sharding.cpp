// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/sharding.h"

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

#include "core/memory/guards.h"
#include "core/memory/placement.h"

namespace snug::plan::rivals {
namespace {

using memory::Category;

// Runs a module again when the gradient of its output arrives.
struct Recompute : torch::autograd::Node {
  TensorModule module;
  std::vector<at::Tensor> inputs;
  std::vector<bool> wanted;  // whose gradients
  std::vector<at::Tensor> held;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::AutoGradMode mode(true);
    std::vector<at::Tensor> again;
    for (size_t i = 0; i < inputs.size(); ++i) {
      again.push_back(inputs[i].defined() ? inputs[i].detach() : at::Tensor());
      if (wanted[i]) again.back().set_requires_grad(true);
    }
    torch::autograd::backward({module(again)}, {gradients[0]});
    torch::autograd::variable_list out;
    for (size_t i = 0; i < again.size(); ++i)
      out.push_back(wanted[i] ? again[i].grad() : at::Tensor());
    return out;
  }
  void release_variables() override { inputs.clear(); }
};

// What the first run in progress holds past recomputation; null: no run.
thread_local std::vector<at::Tensor>* held_now = nullptr;

struct IntoBucket : torch::autograd::PostAccumulateGradHook {
  void operator()(const torch::autograd::Variable& weight) override {
    weight.mutable_grad().reset();
  }
};

}  // namespace

struct FlatWeights::Hook : torch::autograd::PostAccumulateGradHook {
  explicit Hook(FlatWeights& weights) : owner(weights) {}
  void operator()(const torch::autograd::Variable& /*flat*/) override { owner.reduce(); }
  FlatWeights& owner;
};

FlatWeights::FlatWeights(std::vector<at::Tensor*> slots, int64_t ranks, at::ScalarType gathered)
    : slots_(std::move(slots)) {
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
  flat_ = at::empty({part * ranks}, options.dtype(gathered));
  memory::vacate(flat_);
  flat_.set_requires_grad(true);
  if (part * ranks > sum) counts_.push_back(part * ranks - sum);
  torch::autograd::impl::set_post_acc_grad_hooks(flat_, std::make_unique<Hook>(*this));
}

FlatWeights::~FlatWeights() { torch::autograd::impl::set_post_acc_grad_hooks(flat_, nullptr); }

void FlatWeights::gather() {
  if (memory::is_vacant(flat_)) {
    gathers_.push_back(memory::meta_ledger().serial());
    memory::refill(flat_, Category::Parameters);
  }
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
  at::Tensor reduced = [&] {
    const memory::CategoryGuard category(Category::Gradients);
    return at::empty_like(part_, flat_.options().requires_grad(false));
  }();
  flat_.mutable_grad().reset();
  const memory::CategoryGuard category(Category::Gradients);
  reduced = reduced.to(part_.scalar_type());
  if (!part_.grad().defined()) part_.mutable_grad() = reduced;
}

void gradients_go_into_buckets(const at::Tensor& weight) {
  torch::autograd::impl::set_post_acc_grad_hooks(weight, std::make_unique<IntoBucket>());
}

void gradients_stay(const at::Tensor& weight) {
  torch::autograd::impl::set_post_acc_grad_hooks(weight, nullptr);
}

void keep_past_recomputation(const at::Tensor& x) {
  if (held_now != nullptr) held_now->push_back(x);
}

at::Tensor recomputed(const std::vector<at::Tensor>& inputs, TensorModule module) {
  const auto node = std::shared_ptr<Recompute>(new Recompute, torch::autograd::deleteNode);
  at::Tensor out;
  {
    const at::NoGradGuard no_grad;
    held_now = &node->held;
    out = module(inputs).variable_data();  // of a view too, nothing but its memory
    held_now = nullptr;
  }
  node->module = std::move(module);
  torch::autograd::edge_list edges;
  for (const at::Tensor& input : inputs) {
    node->wanted.push_back(input.defined() && input.requires_grad());
    node->inputs.push_back(input.defined() ? input.detach() : at::Tensor());
    edges.push_back(input.defined() ? torch::autograd::impl::gradient_edge(input)
                                    : torch::autograd::Edge());
  }
  node->set_next_edges(std::move(edges));
  torch::autograd::create_gradient_edge(out, node);
  return out;
}

}  // namespace snug::plan::rivals
