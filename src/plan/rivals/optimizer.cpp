// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/optimizer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <utility>

#include "core/memory/guards.h"
#include "core/memory/placement.h"
#include "plan/rivals/sharding.h"

namespace snug::plan::rivals {
namespace {

using memory::Category;
using Name = recipe::OptimizerName;

at::Tensor make(const at::Tensor& w, at::ScalarType type) {
  return at::empty(w.sizes(), w.options().dtype(type));
}

// bitsandbytes' 8-bit states: those of few elements are float32; others have a scale a block.
bool has_8bit_states(const at::Tensor& w) { return w.numel() >= 4096; }
at::Tensor make_8bit_codes(const at::Tensor& w) {
  return make(w, has_8bit_states(w) ? at::kByte : at::kFloat);
}
at::Tensor make_8bit_scales(const at::Tensor& w) {
  constexpr int64_t kBlock = 256;
  return at::empty({(w.numel() + kBlock - 1) / kBlock}, w.options().dtype(at::kFloat));
}

class TorchOptimizer : public Optimizer {
 public:
  TorchOptimizer(const recipe::OptimizerOptions& options, const std::vector<at::Tensor>& weights,
                 UpdateOrder order)
      : options_(options), weights_(weights), order_(order) {}

  void step() override {
    const memory::PhaseGuard phase(memory::Phase::Step);
    const memory::HostGuard host(order_.on_host);
    const bool sgd = options_.name == Name::Sgd;
    if (states_.empty() && (!sgd || options_.momentum != 0)) make_states();
    // AdamW makes the square roots of second moments; SGD with decay gradients with it added.
    std::vector<at::Tensor> temporaries;
    if ((options_.name == Name::AdamW && !order_.fused) || (sgd && options_.weight_decay != 0))
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
    if (options_.name != Name::AdamW8bit) {
      states_.push_back(at::empty_like(w));
    } else if (order_.first_in_float32 && w.is_same(weights_.front())) {
      states_.push_back(make(w, at::kFloat));
    } else {
      states_.push_back(make_8bit_codes(w));
      if (has_8bit_states(w)) states_.push_back(make_8bit_scales(w));
    }
  }

  recipe::OptimizerOptions options_;
  const std::vector<at::Tensor>& weights_;
  UpdateOrder order_;
  std::vector<at::Tensor> states_;
};

class PagedAdamW : public Optimizer {
 public:
  PagedAdamW(const std::vector<at::Tensor>& weights, PagedStates kind)
      : weights_(weights), kind_(kind) {}

  void step() override {
    constexpr int64_t kSmallestPaged = 100000;
    const memory::PhaseGuard phase(memory::Phase::Step);
    if (paged_bytes_ > 0 || !states_.empty()) return;
    const memory::CategoryGuard category(Category::Optimizer);
    for (const at::Tensor& w : weights_) {
      const bool on_device = w.numel() < kSmallestPaged;
      const bool is_8bit =
          kind_.eight_bits && !(kind_.first_in_float32 && w.is_same(weights_.front()));
      const auto bytes = static_cast<int64_t>(is_8bit ? 1 : sizeof(float));
      if (!on_device) paged_bytes_ += 2 * w.numel() * bytes;
      for (int i = 0; i < 2; ++i) {
        if (on_device) states_.push_back(is_8bit ? make_8bit_codes(w) : make(w, at::kFloat));
        if (is_8bit && has_8bit_states(w)) states_.push_back(make_8bit_scales(w));
      }
    }
  }
  int64_t paged_bytes() const override { return paged_bytes_; }

 private:
  const std::vector<at::Tensor>& weights_;
  PagedStates kind_;
  std::vector<at::Tensor> states_;
  int64_t paged_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Optimizer> torch_optimizer(const recipe::OptimizerOptions& options,
                                           const std::vector<at::Tensor>& weights,
                                           UpdateOrder order) {
  return std::make_unique<TorchOptimizer>(options, weights, order);
}

std::unique_ptr<Optimizer> paged_adamw(const std::vector<at::Tensor>& weights, PagedStates states) {
  return std::make_unique<PagedAdamW>(weights, states);
}

// DeepSpeed's part of optimizer.h, as Lightning sets it up.

namespace {

using memory::Category;

// Elements; DeepSpeed's defaults but for the bucket, which Lightning sets.
constexpr int64_t kReduceBucket = 200'000'000;
constexpr int64_t kPrefetchBucket = 50'000'000;
constexpr int64_t kMaxLive = 1'000'000'000;
constexpr int64_t kMaxReuseDistance = 1'000'000'000;
constexpr int64_t kPersistent = 100'000;  // smaller weights stay whole everywhere
// On the host: float32 weights, gradients and two states.
constexpr int64_t kHostBytes = 4 * 4;

// Gradients that leave the device as they come.
class OnHost : public Optimizer {
 public:
  explicit OnHost(std::vector<at::Tensor> weights) : weights_(std::move(weights)) {
    for (const at::Tensor& weight : weights_) gradients_go_into_buckets(weight);
  }
  ~OnHost() override {
    for (const at::Tensor& weight : weights_) gradients_stay(weight);
  }

 protected:
  at::Tensor elements(int64_t count, Category category) const {
    const memory::CategoryGuard guard(category);
    return at::empty({count}, weights_.front().options());
  }

  std::vector<at::Tensor> weights_;
};

class Zero2 : public OnHost {
 public:
  explicit Zero2(const std::vector<at::Tensor>& weights) : OnHost(weights) {
    int64_t most = 0;
    for (const at::Tensor& weight : weights_) {
      most = std::max(most, weight.numel());
      host_bytes_ += kHostBytes * weight.numel();
    }
    largest_ = elements(most, Category::Communication);
  }

  // Two of them overlap.
  void before_backward(bool /*is_last*/) override {
    for (at::Tensor& buffer : buffers_) buffer = elements(kReduceBucket, Category::Communication);
  }
  void after_backward() override {
    for (at::Tensor& buffer : buffers_) buffer.reset();
  }
  int64_t host_bytes() const override { return host_bytes_; }

 private:
  at::Tensor largest_;  // gradient, scaled before it goes
  at::Tensor buffers_[2];
  int64_t host_bytes_ = 0;
};

class Zero3 : public OnHost {
 public:
  Zero3(std::vector<at::Tensor> weights, int64_t ranks) : OnHost(std::move(weights)) {
    std::vector<int64_t> layers;
    int64_t in_parts = 0;
    for (const at::Tensor& weight : weights_) {
      const int64_t part = (weight.numel() + ranks - 1) / ranks;
      parts_.push_back(elements(part, Category::Parameters));
      in_parts += part;
      if (weight.numel() < kPersistent) continue;
      layers.push_back(weight.numel());
      memory::vacate(weight);
    }
    num_gathered_ = most_gathered(layers);
    // Beside them gradients as they come from the GPU.
    host_bytes_ = in_parts * (kHostBytes + static_cast<int64_t>(weights_.front().element_size()));
    bucket_ = elements(kReduceBucket, Category::Communication);
  }

  void before_forward() override { gathered_ = elements(num_gathered_, Category::Parameters); }
  // Gradients are copied once more before the reduction, in the order of the ranks.
  void before_backward(bool /*is_last*/) override {
    scattered_ = elements(kReduceBucket, Category::Communication);
  }
  void after_backward() override {
    gathered_.reset();
    scattered_.reset();
  }
  int64_t host_bytes() const override { return host_bytes_; }

 private:
  std::vector<at::Tensor> parts_;
  at::Tensor bucket_, gathered_, scattered_;
  int64_t num_gathered_ = 0;
  int64_t host_bytes_ = 0;
};

}  // namespace

int64_t most_gathered(const std::vector<int64_t>& layers) {
  // Forward, then backward.
  const auto count = std::ssize(layers);
  std::vector<size_t> uses;
  for (int64_t i = 0; i < 2 * count; ++i)
    uses.push_back(static_cast<size_t>(i < count ? i : 2 * count - 1 - i));
  std::vector<bool> is_there(layers.size());
  int64_t live = 0, most = 0;
  const auto gather = [&](size_t layer) {
    if (!is_there[layer]) live += layers[layer];
    is_there[layer] = true;
  };
  for (size_t now = 0; now < uses.size(); ++now) {
    gather(uses[now]);
    const int64_t before = live;
    const int64_t ahead = std::min(kPrefetchBucket, kMaxLive - live);
    for (size_t next = now + 1; next < uses.size() && live - before < ahead; ++next)
      gather(uses[next]);
    most = std::max(most, live);
    int64_t distance = 0;
    bool again = false;
    for (size_t next = now + 1; next < uses.size() && distance < kMaxReuseDistance; ++next) {
      again = again || uses[next] == uses[now];
      distance += layers[uses[next]];
    }
    if (!again) {
      live -= layers[uses[now]];
      is_there[uses[now]] = false;
    }
  }
  return most;
}

std::unique_ptr<Optimizer> zero2_on_host(const std::vector<at::Tensor>& weights) {
  return std::make_unique<Zero2>(weights);
}

std::unique_ptr<Optimizer> zero3_on_host(std::vector<at::Tensor> weights, int64_t ranks) {
  return std::make_unique<Zero3>(std::move(weights), ranks);
}

}  // namespace snug::plan::rivals
