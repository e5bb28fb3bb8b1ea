// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/optimizer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "core/memory/guards.h"

namespace snug::plan::rivals {
namespace {

using memory::Category;
using Name = recipe::OptimizerName;

at::Tensor make(const at::Tensor& w, at::ScalarType type) {
  return at::empty(w.sizes(), w.options().dtype(type));
}

class TorchOptimizer : public Optimizer {
 public:
  TorchOptimizer(const recipe::OptimizerOptions& options, const std::vector<at::Tensor>& weights,
                 UpdateOrder order)
      : options_(options), weights_(weights), order_(order) {}

  void step() override {
    const memory::PhaseGuard phase(memory::Phase::Step);
    const bool sgd = options_.name == Name::Sgd;
    if (states_.empty() && (!sgd || options_.momentum != 0)) make_states();
    // AdamW makes the square roots of second moments; SGD with decay gradients with it added.
    std::vector<at::Tensor> temporaries;
    if (options_.name == Name::AdamW || (sgd && options_.weight_decay != 0))
      for (const at::Tensor& w : weights_) {
        if (!order_.foreach) temporaries.clear();
        temporaries.push_back(at::empty_like(w));
      }
  }

 private:
  void make_states() {
    const memory::CategoryGuard category(Category::Optimizer);
    const int moments = options_.name == Name::Sgd ? 1 : 2;
    const int together = order_.moment_by_moment ? 1 : moments;
    for (int done = 0; done < moments; done += together)
      for (const at::Tensor& w : weights_)
        for (int i = 0; i < together; ++i) make_state(w);
  }

  void make_state(const at::Tensor& w) {
    if (options_.name == Name::AdamW8bit)
      make_8bit_state(w);
    else
      states_.push_back(at::empty_like(w));
  }

  // bitsandbytes: states of few elements are float32; others have a scale a block.
  void make_8bit_state(const at::Tensor& w) {
    constexpr int64_t kSmallest8bit = 4096, kBlock = 256;
    states_.push_back(make(w, w.numel() < kSmallest8bit ? at::kFloat : at::kByte));
    if (w.numel() >= kSmallest8bit)
      states_.push_back(
          at::empty({(w.numel() + kBlock - 1) / kBlock}, w.options().dtype(at::kFloat)));
  }

  recipe::OptimizerOptions options_;
  const std::vector<at::Tensor>& weights_;
  UpdateOrder order_;
  std::vector<at::Tensor> states_;
};

class PagedAdamW : public Optimizer {
 public:
  explicit PagedAdamW(const std::vector<at::Tensor>& weights) : weights_(weights) {}

  void step() override {
    constexpr int64_t kSmallestPaged = 100000;
    const memory::PhaseGuard phase(memory::Phase::Step);
    if (paged_bytes_ > 0 || !states_.empty()) return;
    const memory::CategoryGuard category(Category::Optimizer);
    for (const at::Tensor& w : weights_) {
      const bool on_device = w.numel() < kSmallestPaged;
      if (!on_device) paged_bytes_ += 2 * w.numel() * static_cast<int64_t>(sizeof(float));
      for (int i = 0; on_device && i < 2; ++i) states_.push_back(make(w, at::kFloat));
    }
  }
  int64_t paged_bytes() const override { return paged_bytes_; }

 private:
  const std::vector<at::Tensor>& weights_;
  std::vector<at::Tensor> states_;
  int64_t paged_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Optimizer> torch_optimizer(const recipe::OptimizerOptions& options,
                                           const std::vector<at::Tensor>& weights,
                                           UpdateOrder order) {
  return std::make_unique<TorchOptimizer>(options, weights, order);
}

std::unique_ptr<Optimizer> paged_adamw(const std::vector<at::Tensor>& weights) {
  return std::make_unique<PagedAdamW>(weights);
}

}  // namespace snug::plan::rivals
