// DeepSpeed's part of optimizer.h, as Lightning sets it up.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "core/memory/guards.h"
#include "core/memory/placement.h"
#include "plan/rivals/optimizer.h"
#include "plan/rivals/sharding.h"

namespace snug::plan::rivals {
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
  void before_backward() override {
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
  // What is reduced is copied once more, in the order in which the ranks get it.
  void before_backward() override { scattered_ = elements(kReduceBucket, Category::Communication); }
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
