// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/torch_optimizer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "base/error.h"
#include "core/memory/guards.h"
#include "plan/rivals/torch_operators.h"

namespace snug::plan {
namespace {

using memory::Category;

// bitsandbytes: states of fewer elements are float32; others have a scale a block.
constexpr int64_t kSmallest8bit = 4096, kStateBlock = 256;
// Elements of what Lightning asks DeepSpeed to send at a time; two of them overlap.
constexpr int64_t kBucket = 200'000'000;
constexpr int64_t kHostBytesPerWeight = 4 * 4;

at::TensorOptions plain(const at::Tensor& w) { return w.options().requires_grad(false); }

}  // namespace

TorchOptimizer::TorchOptimizer(const recipe::Recipe& recipe, const std::vector<at::Tensor>& weights,
                               bool foreach)
    : options_(recipe.optimizer),
      on_host_(recipe.optimizer_offload == "cpu"),
      foreach_(foreach),
      weights_(weights) {
  const std::string& name = options_.name;
  if (name != "adamw" && name != "sgd" && name != "adamw_8bit")
    throw UserError(
        "like: optimizer = {}: Lightning scripts are planned with adamw, sgd and adamw_8bit", name);
  if (recipe.optimizer_offload != "none" && (!on_host_ || name != "adamw"))
    throw UserError(
        "like: optimizer = {} with optimizer_offload = {}: DeepSpeed is planned with adamw on the "
        "host",
        name, recipe.optimizer_offload);
  if (!on_host_) return;
  const memory::CategoryGuard category(Category::Communication);
  const auto most = std::max_element(
      weights_.begin(), weights_.end(),
      [](const at::Tensor& a, const at::Tensor& b) { return a.numel() < b.numel(); });
  largest_ = at::empty({most->numel()}, plain(*most));
  for (const at::Tensor& weight : weights_) eager::gradients_go_into_buckets(weight);
}

TorchOptimizer::~TorchOptimizer() {
  if (!on_host_) return;
  for (const at::Tensor& weight : weights_)
    torch::autograd::impl::set_post_acc_grad_hooks(weight, nullptr);
}

int64_t TorchOptimizer::host_bytes() const {
  int64_t elements = 0;
  for (const at::Tensor& weight : weights_) elements += weight.numel();
  return on_host_ ? kHostBytesPerWeight * elements : 0;
}

void TorchOptimizer::before_backward() {
  if (!on_host_) return;
  const memory::CategoryGuard category(Category::Communication);
  for (int i = 0; i < 2; ++i) buffers_.push_back(at::empty({kBucket}, plain(weights_.front())));
}

void TorchOptimizer::after_backward() { buffers_.clear(); }

void TorchOptimizer::make_states() {
  const memory::CategoryGuard category(Category::Optimizer);
  for (const at::Tensor& w : weights_)
    for (int i = 0; i < (options_.name == "sgd" ? 1 : 2); ++i) {
      if (options_.name != "adamw_8bit") {
        states_.push_back(at::empty_like(w, plain(w)));
      } else if (w.numel() < kSmallest8bit) {
        states_.push_back(at::empty(w.sizes(), plain(w).dtype(at::kFloat)));
      } else {
        states_.push_back(at::empty(w.sizes(), plain(w).dtype(at::kByte)));
        states_.push_back(
            at::empty({(w.numel() + kStateBlock - 1) / kStateBlock}, plain(w).dtype(at::kFloat)));
      }
    }
}

void TorchOptimizer::step() {
  const memory::PhaseGuard phase(memory::Phase::Step);
  if (on_host_) return;
  const bool has_states = options_.name != "sgd" || options_.momentum != 0;
  if (has_states && states_.empty()) make_states();
  // AdamW makes the square roots of second moments; SGD with decay gradients with it added.
  std::vector<at::Tensor> temporaries;
  if (options_.name == "adamw" || (options_.name == "sgd" && options_.weight_decay != 0))
    for (const at::Tensor& w : weights_) {
      if (!foreach_) temporaries.clear();
      temporaries.push_back(at::empty_like(w, plain(w)));
    }
}

}  // namespace snug::plan
