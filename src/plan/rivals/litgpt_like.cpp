// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/litgpt_like.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "core/memory/guards.h"
#include "plan/rivals/deepspeed_zero3.h"
#include "plan/rivals/litgpt_model.h"
#include "plan/timeline.h"

namespace snug::plan {
namespace {

using memory::Category;

constexpr int64_t kChunk = 128;

// LitGPT's chunked_cross_entropy: the loss in chunks of 128 rows of logits that exist whole, or in
// the pieces that there are.
at::Tensor chunked_cross_entropy(const std::vector<at::Tensor>& logits, const at::Tensor& targets,
                                 bool in_pieces, at::ScalarType type) {
  constexpr int64_t kIgnored = -100;
  std::vector<at::Tensor> rows, wanted;
  if (!in_pieces) {
    rows = logits[0].reshape({-1, logits[0].size(-1)}).split(kChunk);
    wanted = targets.reshape({-1}).split(kChunk);
  } else {
    for (const at::Tensor& piece : logits) rows.push_back(piece.reshape({-1, piece.size(-1)}));
    for (const at::Tensor& piece : targets.split(logits[0].size(1), 1))
      wanted.push_back(piece.reshape({-1}));
  }
  std::vector<at::Tensor> losses;
  for (size_t i = 0; i < rows.size(); ++i)
    losses.push_back(
        at::cross_entropy_loss(rows[i].scalar_type() == at::kFloat ? rows[i] : rows[i].to(type),
                               wanted[i], {}, at::Reduction::None, kIgnored, 0.0));
  const at::Tensor counted = (targets != kIgnored).sum();
  return at::cat(losses).sum() / at::maximum(counted, at::ones_like(counted));
}

// torch.optim.AdamW or SGD as they run on a GPU without further options: one call for all weights
// (foreach). With quantized weights bitsandbytes' PagedAdamW: float32 states, of which the large
// ones are none of the allocator's, and no temporaries.
class Optimizer {
 public:
  Optimizer(const recipe::OptimizerOptions& options, bool paged,
            const std::vector<at::Tensor>& weights)
      : options_(options), paged_(paged), weights_(weights) {
    if (paged && options.name != "adamw")
      throw UserError("like: optimizer = {}: LitGPT trains quantized models with AdamW only",
                      options.name);
    if (options.name != "adamw" && options.name != "sgd")
      throw UserError("like: optimizer = {}: LitGPT is planned with torch's adamw and sgd",
                      options.name);
  }

  void step() {
    const memory::PhaseGuard phase(memory::Phase::Step);
    if (paged_) return make_paged_states();
    const bool adamw = options_.name == "adamw";
    if (states_.empty() && (adamw || options_.momentum != 0)) {
      const memory::CategoryGuard category(Category::Optimizer);
      for (int i = 0; i < (adamw ? 2 : 1); ++i)
        for (const at::Tensor& w : weights_) states_.push_back(like(w));
    }
    // AdamW: the square roots of all second moments; SGD with decay: all gradients with it added.
    std::vector<at::Tensor> temporaries;
    if (adamw || options_.weight_decay != 0)
      for (const at::Tensor& w : weights_) temporaries.push_back(like(w));
  }

  int64_t paged_bytes() const { return paged_bytes_; }

 private:
  static at::Tensor like(const at::Tensor& w) {
    return at::empty_like(w, w.options().requires_grad(false));
  }

  void make_paged_states() {
    constexpr int64_t kSmallestPaged = 100000;
    if (paged_bytes_ > 0 || !states_.empty()) return;
    const memory::CategoryGuard category(Category::Optimizer);
    for (const at::Tensor& w : weights_) {
      const bool on_device = w.numel() < kSmallestPaged;
      if (!on_device) paged_bytes_ += 2 * w.numel() * static_cast<int64_t>(sizeof(float));
      for (int i = 0; on_device && i < 2; ++i)
        states_.push_back(at::empty(w.sizes(), w.options().dtype(at::kFloat).requires_grad(false)));
    }
  }

  const recipe::OptimizerOptions& options_;
  bool paged_;
  int64_t paged_bytes_ = 0;
  const std::vector<at::Tensor>& weights_;
  std::vector<at::Tensor> states_;
};

class LitgptTraining {
 public:
  LitgptTraining(const models::Model& like, const recipe::Recipe& recipe,
                 const LitgptOptions& options)
      : recipe_(recipe),
        options_(options),
        precision_(nn::parse_precision(recipe.precision)),
        model_(like, recipe, options.tokens, options.fused_attention, options.sharding,
               options.ranks),
        optimizer_(recipe.optimizer, !recipe.quantize.empty(), model_.weights()) {
    if (options.sharding == LitgptSharding::Ddp) make_buckets();
    if (options.sharding == LitgptSharding::Zero3Offload) take_apart();
  }

  LitgptLike run() {
    const int64_t accumulate = std::min<int64_t>(
        2, recipe_.train.global_batch_size / options_.ranks / recipe_.train.micro_batch_size);
    for (int step = 0; step < 2; ++step) {
      for (int64_t i = 0; i < std::max<int64_t>(1, accumulate); ++i)
        run_micro_batch(static_cast<double>(accumulate), /*first=*/i == 0);
      if (zero3_ == nullptr) optimizer_.step();
      if (!trainer()) drop_gradients();
    }
    if (zero3_ != nullptr) result_.prediction.peak_host = zero3_->host_bytes();
    result_.paged_states = optimizer_.paged_bytes();
    return result_;
  }

 private:
  // DDP's copies of all gradients, which gradients are not views of unless it is told so.
  void make_buckets() {
    const memory::CategoryGuard category(Category::Communication);
    for (const at::Tensor& weight : model_.weights())
      buckets_.push_back(at::empty_like(weight, weight.options().requires_grad(false)));
  }

  void take_apart() {
    if (recipe_.optimizer.name != "adamw")
      throw UserError("like: optimizer = {}: DeepSpeed is planned with adamw on the host",
                      recipe_.optimizer.name);
    std::vector<at::Tensor> in_order = model_.weights();  // but for the head, which is made first
    std::rotate(in_order.begin(), in_order.begin() + 1, in_order.end());
    zero3_ = std::make_unique<DeepSpeedZero3>(std::move(in_order), options_.ranks);
  }

  bool trainer() const { return options_.loop == LitgptLoop::Trainer; }

  void run_micro_batch(double accumulate, bool first) {
    const at::AutoGradMode mode(true);
    memory::Ledger& ledger = memory::meta_ledger();
    const memory::PhaseGuard phase(memory::Phase::Forward);
    {
      const memory::CategoryGuard category(Category::Data);
      const auto ints = at::TensorOptions(at::kMeta).dtype(at::kLong);
      ids_ = at::empty({options_.batch, options_.tokens}, ints);
      labels_ = at::empty({options_.batch, options_.tokens}, ints);
    }
    if (zero3_ != nullptr) zero3_->before_forward();
    const uint64_t start = ledger.serial();
    const bool in_pieces = recipe_.lora.enabled && !trainer();
    std::vector<at::Tensor> logits = model_.forward(ids_, in_pieces ? kChunk : 0);
    model_.drop_weight_casts();
    {
      const memory::UnitGuard unit(memory::unit_id("head"));
      // Fabric casts what a model returns to float32; under the Trainer autocast does, in the loss.
      // All pieces exist in both types, beside those of the micro-batch before.
      std::vector<at::Tensor> cast = logits;
      if (!trainer())
        for (at::Tensor& piece : cast) piece = piece.to(at::kFloat);
      logits.clear();
      logits_ = std::move(cast);
      // The last one's prediction has no target. Of pieces that is written back into the list.
      std::vector<at::Tensor> predicted = logits_;
      predicted.back() = predicted.back().slice(1, 0, predicted.back().size(1) - 1);
      loss_ = chunked_cross_entropy(predicted, labels_.slice(1, 1, options_.tokens), in_pieces,
                                    precision_.parameters);
    }
    ledger.retag_since(start, Category::Activations);
    note_forward(ledger.now());
    if (trainer() && first) drop_gradients();
    const memory::PhaseGuard backward(memory::Phase::Backward);
    const memory::UnitGuard unit(memory::unit_id("head"));
    if (zero3_ != nullptr) zero3_->before_backward();
    torch::autograd::backward({loss_ / accumulate}, {});
    if (zero3_ != nullptr) zero3_->after_backward();
    // A training_step's variables end with it; Fabric's loop keeps them until they are overwritten.
    if (trainer()) {
      logits_.clear();
      loss_.reset();
    }
  }

  void note_forward(const memory::Snapshot& now) {
    result_.after_forward = now.allocated;
    const auto kept = [](const memory::ByCategory& bytes) {
      return bytes[static_cast<size_t>(Category::Activations)];
    };
    const auto head = static_cast<size_t>(memory::unit_id("head"));
    result_.head = head < now.by_unit.size() ? kept(now.by_unit[head]) : 0;
    result_.kept_by_blocks = kept(now.by_category) - result_.head;
  }

  void drop_gradients() {
    for (const at::Tensor& weight : model_.weights()) weight.mutable_grad().reset();
  }

  const recipe::Recipe& recipe_;
  LitgptOptions options_;
  nn::Precision precision_;
  LitgptModel model_;
  Optimizer optimizer_;
  std::unique_ptr<DeepSpeedZero3> zero3_;  // instead of the optimizer
  at::Tensor ids_, labels_, loss_;
  std::vector<at::Tensor> logits_;
  std::vector<at::Tensor> buckets_;
  LitgptLike result_;
};

}  // namespace

LitgptLike like_litgpt(const models::Model& model, const recipe::Recipe& recipe,
                       const LitgptOptions& options) {
  memory::Ledger& ledger = memory::meta_ledger();
  const int64_t before = ledger.allocated();
  ledger.reset_peak();
  LitgptLike result;
  {
    TimelineRecorder recorder(ledger);
    result = LitgptTraining(model, recipe, options).run();
    const memory::Snapshot peak = ledger.at_peak();
    Prediction& p = result.prediction;
    p.peak_allocated = peak.allocated - before;
    p.by_category = peak.by_category;
    p.timeline = recorder.moments();
    replay_reserved(recorder.events(), options.reserved_limit, Segments::Fixed, p);
  }
  result.after_forward -= before;
  for (const Moment& moment : result.prediction.timeline)
    if (moment.phase == memory::Phase::Step)
      result.update_temporaries = std::max(
          result.update_temporaries, moment.by_category[static_cast<size_t>(Category::Workspace)]);
  return result;
}

}  // namespace snug::plan
