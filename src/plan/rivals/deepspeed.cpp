// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/deepspeed.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "core/memory/guards.h"
#include "plan/rivals/zero_weights.h"

namespace snug::plan::rivals {
namespace {

using memory::Category;

// Elements of a gradient whose norm stage 3 takes at once.
constexpr int64_t kNormAtOnce = 250'000'000;
// Float32 elements that stage 3 writes to a disk: at least, and in blocks. The host has buffers,
// each as large as the largest sub-group.
constexpr int64_t kSmallestOnDisk = 262'144, kBlockOnDisk = 256;
constexpr int64_t kBuffersOfDisk = 4;

struct Arrival : torch::autograd::PostAccumulateGradHook {
  explicit Arrival(std::function<void()> then) : then(std::move(then)) {}
  void operator()(const torch::autograd::Variable& /*weight*/) override { then(); }
  std::function<void()> then;
};

// Masters, states and the update, which are the same in all stages but for how large a rank's part
// of the weights is, and where its gradients are.
class Zero : public Optimizer {
 public:
  Zero(std::vector<at::Tensor> weights, const ZeroOptions& options)
      : weights_(std::move(weights)), options_(options) {
    // The Trainer's two groups: what decays, and norms and biases.
    std::stable_partition(weights_.begin(), weights_.end(),
                          [](const auto& w) { return w.dim() > 1; });
    for (size_t i = 0; i < weights_.size(); ++i)
      torch::autograd::impl::set_post_acc_grad_hooks(
          weights_[i], std::make_unique<Arrival>([this, i] { arrive(i); }));
  }
  ~Zero() override {
    for (const at::Tensor& weight : weights_)
      torch::autograd::impl::set_post_acc_grad_hooks(weight, nullptr);
  }

  void before_backward(bool is_last) override { is_last_ = is_last; }

  void step() override {
    const memory::PhaseGuard phase(memory::Phase::Step);
    if (offloads()) return states_->step();
    { const at::Tensor norm = make(largest_, at::kDouble, Category::Workspace); }
    for (size_t group = 0; group < masters_.size(); ++group) {
      const int64_t part = masters_[group].numel();
      at::Tensor gradient = make(part, type(), Category::Gradients);
      if (type() != at::kFloat) gradient = make(part, at::kFloat, Category::Gradients);
      if (group + 1 == masters_.size()) forget_gradients();
      if (group == 0) states_->step();
    }
  }

 protected:
  // A gradient has been added to the weight's.
  virtual void arrive(size_t weight) = 0;
  // What is kept of a step's gradients has been copied for the update.
  virtual void forget_gradients() {}

  // After the constructor: rows of masters, group by group, and the largest gradient that is kept.
  void make_masters(recipe::OptimizerOptions optimizer, UpdateOrder order,
                    const std::vector<int64_t>& parts, int64_t largest) {
    largest_ = largest;
    int64_t most = 0;
    for (const int64_t part : parts) {
      if (is_on_disk(part)) {
        most = std::max(most, part);
        continue;
      }
      if (offloads()) keep_on_host(part, at::kFloat, Category::Gradients);
      const memory::HostGuard host(on_host());
      masters_.push_back(make(part, at::kFloat, Category::Optimizer));
    }
    if (most > 0) keep_on_host(kBuffersOfDisk * most, at::kFloat, Category::Workspace);
    // accelerate puts DeepSpeed's Adam in the place of any other.
    if (offloads()) optimizer.name = recipe::OptimizerName::AdamW;
    order.on_host = on_host();
    states_ = torch_optimizer(optimizer, masters_, order);
  }
  void keep_on_host(int64_t elements, at::ScalarType type, Category category) {
    const memory::HostGuard host(on_host());
    on_host_.push_back(make(elements, type, category));
  }
  // For the norm of a gradient that leaves the device.
  static void make_norm(int64_t elements) { make(elements, at::kDouble, Category::Workspace); }

  // What is written to a disk, if it is large enough.
  bool is_on_disk(int64_t elements) const {
    return options_.stage == 3 && options_.home == ZeroOptions::Home::Disk &&
           elements >= kSmallestOnDisk;
  }
  bool offloads() const { return options_.home != ZeroOptions::Home::Device; }
  bool on_host() const { return offloads() && !options_.on_cpu; }
  const recipe::DeepSpeed& settings() const { return options_.settings; }
  at::ScalarType type() const { return weights_.front().scalar_type(); }
  static at::Tensor make(int64_t elements, at::ScalarType type, Category category) {
    const memory::CategoryGuard guard(category);
    return at::empty({elements}, at::TensorOptions(at::kMeta).dtype(type));
  }
  void drop_gradient(size_t weight) { weights_[weight].mutable_grad().reset(); }
  // The weights of the two groups: [begin, end).
  std::vector<std::pair<size_t, size_t>> groups() const {
    const auto flat =
        std::find_if(weights_.begin(), weights_.end(), [](const auto& w) { return w.dim() < 2; });
    const auto first = static_cast<size_t>(flat - weights_.begin());
    std::vector<std::pair<size_t, size_t>> all;
    if (first > 0) all.emplace_back(0, first);
    if (first < weights_.size()) all.emplace_back(first, weights_.size());
    return all;
  }

  std::vector<at::Tensor> weights_;
  ZeroOptions options_;
  bool is_last_ = true;

 private:
  std::vector<at::Tensor> masters_, on_host_;
  std::unique_ptr<Optimizer> states_;
  int64_t largest_ = 0;
};

// Stages 1 and 2. A rank's part is a stretch of all weights of a group one behind another.
class ZeroOfStates : public Zero {
 public:
  ZeroOfStates(const recipe::OptimizerOptions& optimizer, UpdateOrder order,
               const std::vector<at::Tensor>& weights, const ZeroOptions& options)
      : Zero(weights, options), places_(weights_.size()) {
    std::vector<int64_t> parts;
    int64_t largest = 0;
    const int64_t ranks = options.ranks;
    for (const auto& [begin, end] : groups()) {
      int64_t sum = 0, offset = 0;
      for (size_t i = begin; i < end; ++i) sum += weights_[i].numel();
      const int64_t part = (sum + ranks - 1) / ranks;
      parts.push_back(part);
      for (size_t i = begin; i < end; offset += weights_[i++].numel()) {
        const int64_t last = (offset + weights_[i].numel() - 1) / part;
        places_[i] = {.offset = offset, .part = part, .first = offset / part, .last = last};
        if (!is_here(i)) continue;
        in_part_ += weights_[i].numel();
        largest = std::max(largest, elements_here(i));
      }
    }
    make_masters(optimizer, order, parts, largest);
    if (!offloads()) return;
    for (const int64_t part : parts) keep_on_host(part, type(), Category::Parameters);
    const auto whole =
        std::max_element(weights_.begin(), weights_.end(),
                         [](const auto& a, const auto& b) { return a.numel() < b.numel(); });
    keep_on_host(whole->numel(), type(), Category::Communication);
    on_its_way_ = make(whole->numel(), type(), Category::Communication);
  }

  void after_backward() override {
    if (options_.stage == 1) {
      if (!is_last_) return;
      for (size_t i = 0; i < weights_.size(); ++i)
        if (weights_[i].grad().defined()) add(i);
    }
    reduce();
    if (!accumulated_.defined()) accumulated_ = std::move(reduced_);
    reduced_.reset();
    for (at::Tensor& bucket : buckets_) bucket.reset();
    for (size_t i = 0; i < weights_.size(); ++i) drop_gradient(i);
  }

 private:
  // Among the weights of its group.
  struct Place {
    int64_t offset = 0, part = 0;
    int64_t first = 0, last = 0;  // ranks
  };

  bool is_here(size_t i) const { return places_[i].first == 0; }
  int64_t elements_here(size_t i) const {
    return std::min(weights_[i].numel(), places_[i].part - places_[i].offset);
  }
  void forget_gradients() override { accumulated_.reset(); }

  void arrive(size_t i) override {
    if (!buckets_[0].defined())
      for (int b = 0; b < (settings().overlaps ? 2 : 1); ++b)
        buckets_[b] = make(settings().reduce_bucket, type(), Category::Communication);
    if (options_.stage > 1) add(i);
  }

  // A gradient is copied into the bucket. A larger one stays or, before it is offloaded, moves.
  void add(size_t i) {
    const int64_t elements = weights_[i].numel();
    if (in_bucket_ + elements > settings().reduce_bucket) reduce();
    if (elements <= settings().reduce_bucket)
      drop_gradient(i);
    else if (offloads())
      make(elements, type(), Category::Gradients);
    in_bucket_ += elements;
    waiting_.push_back(i);
  }

  void reduce() {
    copy_slices();
    for (const size_t i : waiting_) {
      if (is_here(i) && offloads())
        offload(i);
      else if (is_here(i) && !reduced_.defined())
        reduced_ = make(in_part_, type(), Category::Gradients);
      if (is_here(i) || options_.stage > 1) drop_gradient(i);
    }
    waiting_.clear();
    in_bucket_ = 0;
  }

  // Sums over micro-batches wait on the host, whole, until the last has its part for the update.
  void offload(size_t i) {
    if (is_last_) return make_norm(elements_here(i));
    if (options_.stage > 1 && sums_.insert(i).second)
      keep_on_host(weights_[i].numel(), type(), Category::Gradients);
  }

  // Slices of several ranks are summed in a copy, those of one where they are.
  void copy_slices() const {
    int64_t before = -1, slices = 0, elements = 0;
    const auto flush = [&] {
      if (slices > 1) make(elements, type(), Category::Communication);
      slices = elements = 0;
      before = -1;
    };
    for (const size_t i : waiting_) {
      const Place& place = places_[i];
      const int64_t end = place.offset + weights_[i].numel();
      for (int64_t rank = place.first; rank <= place.last; ++rank) {
        if (elements > settings().reduce_bucket && rank != before) flush();
        if (rank != before) ++slices;
        elements +=
            std::min(end, (rank + 1) * place.part) - std::max(place.offset, rank * place.part);
        before = rank;
      }
    }
    flush();
  }

  std::vector<Place> places_;
  int64_t in_part_ = 0;  // elements of the weights that lie in this rank's part, or begin there
  at::Tensor buckets_[2];
  std::vector<size_t> waiting_;
  int64_t in_bucket_ = 0;
  at::Tensor reduced_, accumulated_;  // gradients of this rank's weights
  at::Tensor on_its_way_;             // from the host: the sum of a gradient, there all the time
  std::set<size_t> sums_;             // weights whose gradients are added up on the host
};

// Stage 3. A rank's part is one of each weight.
class ZeroOfWeights : public Zero {
 public:
  ZeroOfWeights(const recipe::OptimizerOptions& optimizer, UpdateOrder order,
                const std::vector<at::Tensor>& weights, const ZeroOptions& options,
                ZeroWeights* gathers)
      : Zero(weights, options), gathers_(gathers) {
    std::vector<int64_t> parts;
    int64_t largest = 0, sum = 0;
    for (const auto& [begin, end] : groups()) {
      int64_t of_group = 0;
      for (size_t i = begin; i < end; ++i) {
        largest = std::max(largest, part(i));
        of_group += part(i);
        sum += part(i);
        if (of_group < settings().sub_group && i + 1 < end) continue;
        parts.push_back(std::exchange(of_group, 0));
      }
    }
    bucket_ = make(settings().reduce_bucket, type(), Category::Communication);
    {
      const memory::HostGuard host(on_host());
      gradients_ = make(sum, type(), Category::Gradients);
    }
    make_masters(optimizer, order, parts, largest);
  }

  void after_backward() override { reduce(); }
  void step() override {
    if (gathers_ != nullptr) gathers_->release_all();
    Zero::step();
    for_disk_.clear();
    if (gathers_ != nullptr) gathers_->forget_second_parts();
  }

 private:
  int64_t part(size_t i) const {
    return (weights_[i].numel() + options_.ranks - 1) / options_.ranks;
  }

  void arrive(size_t i) override {
    const int64_t elements = weights_[i].numel();
    if (in_bucket_ + elements > settings().reduce_bucket) reduce();
    if (in_bucket_ + elements <= settings().reduce_bucket) drop_gradient(i);
    in_bucket_ += elements;
    waiting_.push_back(i);
  }

  // Gradients are put together rank by rank, but for a single one.
  void reduce() {
    int64_t sum = 0;
    for (const size_t i : waiting_) sum += part(i) * options_.ranks;
    at::Tensor together;
    if (waiting_.size() > 1) together = make(sum, type(), Category::Communication);
    std::vector<at::Tensor> written;
    for (const size_t i : waiting_) {
      if (offloads()) offload(part(i), written);
      drop_gradient(i);
    }
    waiting_.clear();
    in_bucket_ = 0;
  }

  // Offloads a gradient's part, whose copy has come back from the host.
  void offload(int64_t part, std::vector<at::Tensor>& written) {
    at::Tensor copy;
    if (!options_.on_cpu) copy = make(part, type(), Category::Gradients);
    if (!is_last_) return;
    make_norm(std::min(part, kNormAtOnce));
    if (options_.home != ZeroOptions::Home::Disk) return;
    // In float32 until all are written; what is too small, or has no full last block, stays.
    const bool stays = !is_on_disk(part) || part % kBlockOnDisk != 0;
    (stays ? for_disk_ : written).push_back(make(part, at::kFloat, Category::Gradients));
  }

  ZeroWeights* gathers_;
  at::Tensor bucket_, gradients_;  // there from the beginning
  std::vector<at::Tensor> for_disk_;
  std::vector<size_t> waiting_;
  int64_t in_bucket_ = 0;
};

}  // namespace

recipe::DeepSpeed settled(recipe::DeepSpeed settings, int64_t hidden_size) {
  const auto settle = [](int64_t& number, int64_t automatic) {
    if (number == recipe::DeepSpeed::kAuto) number = automatic;
  };
  settle(settings.reduce_bucket, hidden_size * hidden_size);
  settle(settings.prefetch_bucket, hidden_size * hidden_size * 9 / 10);
  settle(settings.persistence_threshold, 10 * hidden_size);
  return settings;
}

std::unique_ptr<Optimizer> zero_optimizer(const recipe::OptimizerOptions& optimizer,
                                          UpdateOrder order, const std::vector<at::Tensor>& weights,
                                          const ZeroOptions& options, ZeroWeights* gathers) {
  if (options.stage == 3)
    return std::make_unique<ZeroOfWeights>(optimizer, order, weights, options, gathers);
  return std::make_unique<ZeroOfStates>(optimizer, order, weights, options);
}

}  // namespace snug::plan::rivals
