// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/zero_weights.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/memory/guards.h"
#include "core/memory/placement.h"
#include "plan/rivals/record.h"

namespace snug::plan::rivals {
namespace {

using memory::Category;

constexpr int64_t kNever = std::numeric_limits<int64_t>::min();

at::Tensor flat(int64_t elements, const at::Tensor& like, Category category) {
  const memory::CategoryGuard guard(category);
  return at::empty({elements}, like.options().requires_grad(false));
}

}  // namespace

void ZeroWeights::add(at::Tensor* slot) {
  index_[slot] = weights_.size();
  const int64_t part = (slot->numel() + ranks_ - 1) / ranks_;
  memory::vacate(*slot);
  const memory::HostGuard host(parts_.on_host);
  weights_.push_back({.whole = *slot, .part = flat(part, *slot, Category::Parameters)});
  make_second(weights_.back());
}

void ZeroWeights::make_second(Weight& weight) const {
  if (settings_.host_group <= 1 || ranks_ == 1 || weight.second.defined()) return;
  const memory::HostGuard host(parts_.on_host);
  weight.second =
      flat(weight.part.numel() * ranks_ / settings_.host_group, weight.part, Category::Parameters);
}

size_t ZeroWeights::module_of(const Slots& slots) {
  const auto [place, is_new] = module_index_.try_emplace(slots, modules_.size());
  if (!is_new) return place->second;
  std::vector<size_t>& weights = modules_.emplace_back();
  for (at::Tensor* slot : slots)
    if (slot != nullptr) weights.push_back(index_.at(slot));
  return place->second;
}

at::Tensor ZeroWeights::enter(const Slots& slots, const at::Tensor& x) {
  const size_t module = module_of(slots);
  record(module);
  fetch(module, /*is_forward=*/true);
  return rivals::record(x, {x}, {}, [this, module](const Tensors&, const at::Tensor& gradient) {
    release(module, /*is_forward=*/false);
    return Tensors{gradient};
  });
}

at::Tensor ZeroWeights::leave(const Slots& slots, const at::Tensor& out) {
  const size_t module = module_of(slots);
  release(module, /*is_forward=*/true);
  if (out.requires_grad())
    out.register_hook([this, module](const at::Tensor&) {
      record(module);
      in_backward_.push_back(module);
      fetch(module, /*is_forward=*/false);
    });
  return out;
}

void ZeroWeights::record(size_t module) {
  if (trace_ == Trace::Recording) order_.push_back(module);
}

void ZeroWeights::begin_forward() {
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (const auto pending = std::move(weights_[i].gather)) {
      wait(*pending);
      free(i);
    }
    weights_[i].fetched_for = kNever;
  }
  if (trace_ != Trace::Complete)
    trace_ = trace_ == Trace::None ? Trace::Recording : Trace::Complete;
  queue_.clear();
  if (trace_ == Trace::Complete)
    for (size_t step = 0; step < order_.size(); ++step)
      for (const size_t weight : modules_[order_[step]])
        queue_.push_back({weight, static_cast<int64_t>(step)});
  step_ = available_ = 0;
}

void ZeroWeights::fetch(size_t module, bool is_forward) {
  gather(modules_[module]);
  for (const size_t i : modules_[module]) {
    Weight& weight = weights_[i];
    weight.used_by.insert(module);
    if (is_forward && !in_backward_.empty() && !weight.whole.requires_grad())
      recomputed_[in_backward_.back()].insert(i);
    if (const auto pending = std::move(weight.gather)) wait(*pending);
  }
  if (trace_ == Trace::Complete) fetch_ahead(module);
  ++step_;
}

void ZeroWeights::fetch_ahead(size_t module) {
  const auto late =
      std::count_if(modules_[module].begin(), modules_[module].end(),
                    [this](size_t weight) { return weights_[weight].fetched_for < step_; });
  for (auto done = late; done > 0 && !queue_.empty(); --done, queue_.pop_front())
    weights_[queue_.front().weight].fetched_for = queue_.front().step;
  const int64_t most = std::min(settings_.max_live - available_, settings_.prefetch_bucket);
  std::vector<size_t> ahead;
  for (int64_t sum = 0; !queue_.empty() && sum < most; queue_.pop_front()) {
    const Use& use = queue_.front();
    Weight& weight = weights_[use.weight];
    weight.fetched_for = std::max(weight.fetched_for, use.step);
    const bool is_away = !weight.is_here && weight.gather == nullptr;
    if (!is_away || std::find(ahead.begin(), ahead.end(), use.weight) != ahead.end()) continue;
    ahead.push_back(use.weight);
    sum += elements(use.weight);
  }
  gather(ahead);
}

// What has second parts comes from those, apart from the rest.
void ZeroWeights::gather(const std::vector<size_t>& weights) {
  const std::shared_ptr<Gather> all[] = {std::make_shared<Gather>(), std::make_shared<Gather>()};
  for (const size_t i : weights) {
    Weight& weight = weights_[i];
    if (weight.is_here || weight.gather != nullptr) continue;
    weight.gather = all[weight.second.defined() ? 0 : 1];
    weight.gather->weights.push_back(i);
    available_ += elements(i);
  }
  for (const auto& gather : all)
    if (!gather->weights.empty()) begin(*gather);
}

// One weight comes in its own place, several in a buffer, unless there are no others to come from.
// Parts on the host are copied to the device first.
void ZeroWeights::begin(Gather& gather) {
  int64_t sum = 0;
  for (const size_t i : gather.weights) sum += weights_[i].part.numel() * ranks_;
  const bool alone = ranks_ == 1;
  if (gather.weights.size() > 1 && !alone)
    gather.buffer = flat(sum, weights_[gather.weights.front()].whole, Category::Communication);
  else
    for (const size_t i : gather.weights) memory::refill(weights_[i].whole, Category::Parameters);
  if (!parts_.on_host || alone) return;
  std::vector<at::Tensor> copies;
  for (const size_t i : gather.weights) {
    const Weight& weight = weights_[i];
    const at::Tensor& source = weight.second.defined() ? weight.second : weight.part;
    copies.push_back(flat(source.numel(), weight.whole, Category::Communication));
  }
  if (copies.size() == 1) gather.copy = copies.front();
}

void ZeroWeights::wait(Gather& gather) {
  if (gather.is_done) return;
  gather.is_done = true;
  gather.copy.reset();
  for (const size_t i : gather.weights) {
    if (gather.buffer.defined()) memory::refill(weights_[i].whole, Category::Parameters);
    weights_[i].is_here = true;
  }
}

// What is used again within the reuse distance stays, as does what a gather has skipped.
std::set<size_t> ZeroWeights::releasable(size_t module) const {
  std::set<size_t> all(modules_[module].begin(), modules_[module].end());
  if (trace_ != Trace::Complete) return all;
  std::erase_if(all, [this](size_t i) { return stays(i) || weights_[i].fetched_for > step_; });
  int64_t passed = 0;
  for (auto at = static_cast<size_t>(step_);
       at < order_.size() && passed < settings_.max_reuse_distance; ++at)
    for (const size_t i : modules_[order_[at]]) {
      all.erase(i);
      passed += elements(i);
    }
  return all;
}

void ZeroWeights::release(size_t module, bool is_forward) {
  std::set<size_t> leaving = releasable(module);
  if (!is_forward) {
    std::erase(in_backward_, module);
    for (const size_t i : recomputed_[module])
      if (!stays(i)) leaving.insert(i);
    recomputed_.erase(module);
  }
  for (const size_t i : modules_[module]) weights_[i].used_by.erase(module);
  for (const size_t i : leaving) free(i);
}

void ZeroWeights::free(size_t i) {
  Weight& weight = weights_[i];
  if (!weight.is_here || !weight.used_by.empty()) return;
  make_second(weight);
  memory::vacate(weight.whole);
  weight.is_here = false;
  available_ -= elements(i);
}

// Modules whose inputs have no gradient end here.
void ZeroWeights::end_backward() {
  for (; !in_backward_.empty(); in_backward_.pop_back()) {
    const size_t module = in_backward_.back();
    std::set<size_t> weights(modules_[module].begin(), modules_[module].end());
    weights.merge(recomputed_[module]);
    for (const size_t i : weights) {
      weights_[i].used_by.erase(module);
      if (!stays(i)) free(i);
    }
  }
  recomputed_.clear();
}

void ZeroWeights::release_all() {
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (const auto pending = std::move(weights_[i].gather)) wait(*pending);
    weights_[i].used_by.clear();
    free(i);
  }
}

void ZeroWeights::forget_second_parts() {
  for (Weight& weight : weights_)
    if (weight.whole.requires_grad()) weight.second.reset();
}

}  // namespace snug::plan::rivals
