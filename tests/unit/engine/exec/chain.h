// A chain of small units for tests of the executor and its policies: each is an RMSNorm and a
// linear layer, so that what it keeps can be counted by hand, and the last one squares and sums.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "core/memory/guards.h"
#include "core/memory/placement.h"
#include "core/nn/functions.h"
#include "core/nn/objective.h"
#include "engine/exec/executor.h"

namespace snug::exec::tests {

inline constexpr int64_t kRows = 6;
// Features before each unit and after the last: all different, so that bytes tell units apart.
inline const std::vector<int64_t> kWidths = {8, 12, 20, 28, 1};

// The widths' own objective; the chain computes the sum itself.
class SumOfSquares final : public nn::Objective {
 public:
  at::Tensor sum(const at::Tensor& /*hidden*/, const nn::Head& /*head*/, const nn::Batch& /*batch*/,
                 const nn::Pass& /*pass*/) const override {
    throw InternalError("the chain's last unit computes the objective");
  }
};

class Layer final : public nn::Unit {
 public:
  Layer(const std::string& name, int64_t in, int64_t out, bool is_last)
      : Unit(name, nn::UnitKind::Block),
        norm(name + ".norm", in, 1e-6),
        linear(name, nn::Role::Other, in, out, nn::Bias::Present),
        is_last_(is_last) {}

  nn::State forward(const nn::State& input, const nn::Batch& batch, const nn::Pass&) override {
    ++num_forwards;
    if (before_forward) before_forward();
    const at::Tensor x = input.has("hidden") ? input.at("hidden") : batch.pixels;
    const at::Tensor y = linear.forward(norm.forward(x), {});
    nn::State output;
    if (is_last_)
      output.set(nn::kObjective, (y + input.at("aside")).square().sum().view({1}));
    else
      output.set("hidden", y);
    // Made by the first unit, passed on by the others, read by the last.
    if (!input.has("aside")) output.set("aside", y.narrow(1, 0, 1) * 3);
    if (input.has("aside") && !is_last_) output.set("aside", input.at("aside"));
    return output;
  }
  std::vector<nn::Parameter*> parameters() override {
    std::vector<nn::Parameter*> all{&norm.weight};
    linear.list(all);
    return all;
  }

  nn::RmsNorm norm;
  nn::Linear linear;
  int num_forwards = 0;
  std::function<void()> before_forward;

 private:
  bool is_last_;
};

struct Chain {
  explicit Chain(at::Device device = at::kCPU) {
    at::manual_seed(3);
    batch.pixels = at::randn({kRows, kWidths[0]}, device);
    for (size_t i = 0; i + 1 < kWidths.size(); ++i) {
      layers.push_back(std::make_unique<Layer>("chain." + std::to_string(i), kWidths[i],
                                               kWidths[i + 1], i + 2 == kWidths.size()));
      units.push_back(layers.back().get());
    }
    pass.objective = &objective;
    pass.gradient_scale = 0.5;
  }
  // Random weights; with `home` they are kept on the host and copied from there.
  void fill(bool home = false) {
    for (nn::Unit* unit : units) {
      const memory::UnitGuard tag(memory::unit_id(unit->name()));
      for (nn::Parameter* parameter : unit->parameters()) {
        parameter->allocate(at::kCPU, at::kFloat);
        parameter->value.detach().normal_(0.2, 1);
        if (!home) continue;
        parameter->allocate_home();
        parameter->home.copy_(parameter->value.detach());
      }
    }
  }
  std::vector<nn::Parameter*> parameters() const {
    std::vector<nn::Parameter*> all;
    for (nn::Unit* unit : units)
      for (nn::Parameter* parameter : unit->parameters()) all.push_back(parameter);
    return all;
  }
  // On the host where they went there.
  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> all;
    for (const nn::Parameter* p : parameters())
      all.push_back(p->home.defined() && p->home.grad().defined() ? p->home.grad()
                                                                  : p->value.grad());
    return all;
  }
  void drop_gradients() const {
    for (const nn::Parameter* p : parameters()) {
      p->value.mutable_grad().reset();
      if (p->home.defined()) p->home.mutable_grad().reset();
    }
  }
  // `count` micro-batches of the same rows.
  MicroBatches micro_batches(int64_t count) const {
    return {.count = count, .make = [this, count](int64_t number) {
              nn::Pass own = pass;
              own.last_micro_batch = number + 1 == count;
              return MicroBatch{batch, own, number};
            }};
  }
  // Bytes of one unit's weights.
  static int64_t weight_bytes(size_t unit) {
    const int64_t in = kWidths[unit], out = kWidths[unit + 1];
    return 4 * (in + in * out + out);
  }
  // Bytes of the hidden state after a unit, and of what the unit keeps besides: its norm's output
  // and one number a row.
  static int64_t output_bytes(size_t unit) { return 4 * kRows * kWidths[unit + 1]; }
  static int64_t norm_bytes(size_t unit) { return 4 * kRows * kWidths[unit]; }
  static constexpr int64_t kRowBytes = 4 * kRows;

  nn::Batch batch;
  nn::Pass pass;
  SumOfSquares objective;
  std::vector<std::unique_ptr<Layer>> layers;
  std::vector<nn::Unit*> units;
};

// Live bytes of one category, of one of the chain's units or (-1) of them all.
inline int64_t live(const memory::Ledger& ledger, memory::Category category, int64_t unit = -1) {
  const auto all = ledger.now().by_unit;
  int64_t bytes = 0;
  for (int64_t i = 0; i + 1 < std::ssize(kWidths); ++i) {
    const auto id = static_cast<size_t>(memory::unit_id("chain." + std::to_string(i)));
    if ((unit < 0 || unit == i) && id < all.size()) bytes += all[id][static_cast<size_t>(category)];
  }
  return bytes;
}

// Calls `look` with the unit's index at one kind of hook.
class Probe final : public Policy {
 public:
  enum class At { BeforeForward, AfterForward, BeforeBackward, AfterBackward };
  Probe(At at, std::function<void(size_t)> look) : at_(at), look_(std::move(look)) {}
  void before_forward(UnitRun& run) override { see(At::BeforeForward, run); }
  void after_forward(UnitRun& run) override { see(At::AfterForward, run); }
  void before_backward(UnitRun& run) override { see(At::BeforeBackward, run); }
  void after_backward(UnitRun& run) override { see(At::AfterBackward, run); }

 private:
  void see(At at, const UnitRun& run) const {
    if (at == at_) look_(static_cast<size_t>(run.index));
  }
  At at_;
  std::function<void(size_t)> look_;
};

template <class... P>
Policies policies(std::unique_ptr<P>... all) {
  return {std::move(all)...};
}

}  // namespace snug::exec::tests
