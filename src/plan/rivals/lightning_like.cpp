// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/lightning_like.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "core/memory/guards.h"
#include "plan/rivals/blip2_model.h"
#include "plan/rivals/mingpt_model.h"
#include "plan/rivals/torch_optimizer.h"
#include "plan/timeline.h"

namespace snug::plan {
namespace {

using memory::Category;

int64_t of(const memory::ByCategory& bytes, Category category) {
  return bytes[static_cast<size_t>(category)];
}

std::string model_type(const nlohmann::json& config) {
  return config.value("model_type", std::string());
}

std::unique_ptr<TorchModel> make_model(const nlohmann::json& config, const recipe::Recipe& recipe,
                                       const LightningOptions& options) {
  // QLoRA's preparation turns checkpointing on.
  const bool quantized = recipe.lora.enabled && !recipe.quantize.empty();
  const TorchModel::Options model{
      .weights = {.precision = nn::parse_precision(recipe.precision),
                  .sharding = options.sharding,
                  .ranks = options.ranks,
                  .lora = recipe.lora,
                  .quantize = recipe.lora.enabled ? recipe.quantize : ""},
      .checkpointing = recipe.activation_checkpointing != "none" || quantized,
      .batch = options.batch,
      .tokens = options.tokens,
      .labels = options.labels};
  const memory::CategoryGuard category(Category::Parameters);
  if (model_type(config) == "gpt2") return std::make_unique<MinGptModel>(config, model);
  return std::make_unique<Blip2Model>(config, model);
}

class LightningLoop {
 public:
  LightningLoop(const nlohmann::json& config, const recipe::Recipe& recipe,
                const LightningOptions& options)
      : recipe_(recipe),
        options_(options),
        model_(make_model(config, recipe, options)),
        optimizer_(recipe, model_->modules().trained(), /*foreach=*/model_type(config) != "gpt2") {}

  const std::vector<std::unique_ptr<FlatWeights>>& flats() { return model_->modules().flats(); }

  LightningLike run() {
    const int64_t accumulate = std::clamp<int64_t>(
        recipe_.train.global_batch_size / options_.ranks / options_.batch, 1, 2);
    for (step_ = 0; step_ < 2; ++step_) {
      for (int64_t i = 0; i < accumulate; ++i)
        run_micro_batch(static_cast<double>(accumulate), /*first=*/i == 0);
      optimizer_.step();
      note("after_opt_step");
    }
    result_.prediction.peak_host = optimizer_.host_bytes();
    return std::move(result_);
  }

 private:
  // Lightning's closure: forward, gradients of the step before dropped, backward.
  void run_micro_batch(double accumulate, bool first) {
    const at::AutoGradMode mode(true);
    memory::Ledger& ledger = memory::meta_ledger();
    const memory::PhaseGuard phase(memory::Phase::Forward);
    note("before_fwd");
    const uint64_t start = ledger.serial();
    at::Tensor loss = model_->forward();
    ledger.retag_since(start, Category::Activations);
    note_forward(ledger.now());
    note("after_fwd");
    // A training_step's variables end with it.
    model_->drop_outputs();
    if (first) model_->modules().drop_gradients();
    const memory::PhaseGuard backward(memory::Phase::Backward);
    const memory::UnitGuard unit(memory::unit_id("head"));
    optimizer_.before_backward();
    torch::autograd::backward({loss / accumulate}, {});
    loss.reset();
    optimizer_.after_backward();
    note("after_bwd");
  }

  void note(const char* name) {
    const memory::Snapshot now = memory::meta_ledger().now();
    result_.phases.push_back({.step = step_,
                              .name = name,
                              .by_category = now.by_category,
                              .allocated = now.allocated,
                              .peak = memory::meta_ledger().at_peak().allocated});
  }

  void note_forward(const memory::Snapshot& now) {
    result_.after_forward = now.allocated;
    const auto head = static_cast<size_t>(memory::unit_id("head"));
    result_.head = head < now.by_unit.size() ? of(now.by_unit[head], Category::Activations) : 0;
    result_.kept_by_blocks = of(now.by_category, Category::Activations) - result_.head;
  }

  const recipe::Recipe& recipe_;
  LightningOptions options_;
  std::unique_ptr<TorchModel> model_;
  TorchOptimizer optimizer_;
  int step_ = 0;
  LightningLike result_;
};

// FSDP gathers on a stream of its own, and what the allocator has for that stream no other one
// gets: two replays side by side. Returns what is reserved for gathering.
int64_t replay_streams(const std::vector<TimelineRecorder::Event>& events,
                       const std::set<uint64_t>& gathers, int64_t limit, Prediction& result) {
  std::vector<TimelineRecorder::Event> gathered, others;
  for (const TimelineRecorder::Event& event : events)
    (gathers.contains(event.serial) ? gathered : others).push_back(event);
  Prediction pool;
  replay_reserved(gathered, 0, Segments::Fixed, pool);
  replay_reserved(others, limit > 0 ? std::max<int64_t>(1, limit - pool.peak_reserved) : 0,
                  Segments::Fixed, result);
  result.peak_reserved += pool.peak_reserved;
  return pool.peak_reserved;
}

}  // namespace

bool has_lightning_model(const nlohmann::json& config) {
  return model_type(config) == "blip-2" || model_type(config) == "gpt2";
}

LightningLike like_lightning(const nlohmann::json& config, const recipe::Recipe& recipe,
                             const LightningOptions& options) {
  if (!has_lightning_model(config))
    throw UserError("like: lightning: a model of type {} is not planned", model_type(config));
  memory::Ledger& ledger = memory::meta_ledger();
  const int64_t before = ledger.allocated();
  ledger.reset_peak();
  LightningLike result;
  std::set<uint64_t> gathers;
  int64_t all_units = 0;  // gathered at once
  {
    TimelineRecorder recorder(ledger);
    LightningLoop loop(config, recipe, options);
    result = loop.run();
    for (const auto& flat : loop.flats()) {
      gathers.insert(flat->gathers().begin(), flat->gathers().end());
      all_units += flat->gathered_bytes();
    }
    const memory::Snapshot peak = ledger.at_peak();
    Prediction& p = result.prediction;
    p.peak_allocated = peak.allocated - before;
    p.by_category = peak.by_category;
    p.timeline = recorder.moments();
    Prediction limited;
    replay_streams(recorder.events(), gathers, options.reserved_limit, limited);
    p.peak_reserved = limited.peak_reserved;
    p.fits_reserved = limited.fits_reserved;
    // In the PyTorch that minGPT was run with, FSDP limits nothing: the allocator has as much as it
    // can get of what the host asks for ahead of the GPU.
    if (all_units > 0 && model_type(config) == "gpt2") {
      const int64_t few = replay_streams(recorder.events(), gathers, 0, limited);
      result.reserved_ahead = limited.peak_reserved - few + all_units;
      if (options.reserved_limit > 0)
        result.reserved_ahead = std::min(result.reserved_ahead, options.reserved_limit);
    }
  }
  result.after_forward -= before;
  for (LightningPhase& phase : result.phases) {
    phase.allocated -= before;
    phase.peak -= before;
  }
  for (const Moment& moment : result.prediction.timeline)
    if (moment.phase == memory::Phase::Step)
      result.update_temporaries =
          std::max(result.update_temporaries, of(moment.by_category, Category::Workspace));
  return result;
}

}  // namespace snug::plan
