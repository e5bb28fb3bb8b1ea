// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/deepspeed_zero3.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "core/memory/guards.h"
#include "core/memory/placement.h"
#include "plan/rivals/torch_operators.h"

namespace snug::plan {
namespace {

using memory::Category;

// Elements; DeepSpeed's defaults but for the bucket, which Lightning sets.
constexpr int64_t kReduceBucket = 200'000'000;
constexpr int64_t kPrefetchBucket = 50'000'000;
constexpr int64_t kMaxLive = 1'000'000'000;
constexpr int64_t kMaxReuseDistance = 1'000'000'000;
constexpr int64_t kPersistent = 100'000;  // smaller weights stay whole everywhere
// Float32 weights, gradients and two states; beside them gradients as they come from the GPU.
constexpr int64_t kHostFloats = 4;

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

DeepSpeedZero3::DeepSpeedZero3(std::vector<at::Tensor> weights, int64_t ranks)
    : weights_(std::move(weights)) {
  const memory::CategoryGuard category(Category::Parameters);
  std::vector<int64_t> layers;
  int64_t in_parts = 0;
  for (const at::Tensor& weight : weights_) {
    const int64_t part = (weight.numel() + ranks - 1) / ranks;
    parts_.push_back(elements(part));
    in_parts += part;
    eager::gradients_go_into_buckets(weight);
    if (weight.numel() < kPersistent) continue;
    layers.push_back(weight.numel());
    memory::vacate(weight);
  }
  num_gathered_ = most_gathered(layers);
  host_bytes_ = in_parts * (kHostFloats * static_cast<int64_t>(sizeof(float)) +
                            static_cast<int64_t>(weights_.front().element_size()));
  const memory::CategoryGuard communication(Category::Communication);
  bucket_ = elements(kReduceBucket);
}

DeepSpeedZero3::~DeepSpeedZero3() {
  for (const at::Tensor& weight : weights_)
    torch::autograd::impl::set_post_acc_grad_hooks(weight, nullptr);
}

at::Tensor DeepSpeedZero3::elements(int64_t count) const {
  return at::empty({count}, weights_.front().options().requires_grad(false));
}

void DeepSpeedZero3::before_forward() {
  const memory::CategoryGuard category(Category::Parameters);
  gathered_ = elements(num_gathered_);
}

// What is reduced is copied once more, in the order in which the ranks get it.
void DeepSpeedZero3::before_backward() {
  const memory::CategoryGuard category(Category::Communication);
  scattered_ = elements(kReduceBucket);
}

void DeepSpeedZero3::after_backward() {
  gathered_.reset();
  scattered_.reset();
}

}  // namespace snug::plan
