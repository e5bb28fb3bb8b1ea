// What every optimizer owes: ranges give what one sweep gives, gradients may be of another type,
// what has no gradient stays, states are all that a resumed run needs, and meta allocates what cpu
// does.
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "unit/optim/optim_testing.h"

namespace snug::optim {
namespace {

config::OptimizerOptions sgd_with_momentum() {
  config::OptimizerOptions options = options_of("sgd");
  options.momentum = 0.9;
  return options;
}

std::vector<Case> all_cases() {
  return {
      {"adamw", options_of("adamw")},
      {"adamw_bf16", options_of("adamw"), at::kBFloat16, at::kBFloat16},
      {"adamw_f16", options_of("adamw"), at::kHalf, at::kHalf},
      {"adamw_host_twin", options_of("adamw"), at::kFloat, at::kBFloat16},
      {"sgd", options_of("sgd")},
      {"sgd_momentum_bf16", sgd_with_momentum(), at::kBFloat16, at::kBFloat16},
  };
}

const std::vector<std::vector<int64_t>> kShapes = {{40, 129}, {129}, {3, 5}, {70, 600}};

class EveryOptimizer : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }
  const Case& tested() const { return GetParam(); }
  Bench bench(at::Device device = at::kCPU) const { return Bench(tested(), device, kShapes); }
};

TEST_P(EveryOptimizer, RangesInAnyOrderGiveOneSweep) {
  Bench whole = bench(), parts = bench();
  for (uint64_t step = 0; step < 3; ++step) {
    whole.set_gradients(step, tested().gradients);
    parts.set_gradients(step, tested().gradients);
    const StepOptions options = {.lr = whole.lr, .gradient_scale = 0.5};
    whole.optimizer->step(options);
    parts.optimizer->begin_step();
    for (const Range range : {Range{3, 4}, Range{1, 3}, Range{2, 2}, Range{0, 1}})
      parts.optimizer->update(range, options);
  }
  expect_same(whole.parameters, parts.parameters);
  expect_same(whole.optimizer->states(), parts.optimizer->states());
  EXPECT_EQ(parts.optimizer->num_steps(), 3);
}

TEST_P(EveryOptimizer, WhatHasNoGradientStays) {
  Bench b = bench();
  b.set_gradients(1, tested().gradients);
  b.parameters[1].tensor.mutable_grad().reset();
  const at::Tensor before = b.parameters[1].tensor.clone(), other = b.parameters[0].tensor.clone();
  b.optimizer->step({.lr = b.lr});
  EXPECT_TRUE(at::equal(before, b.parameters[1].tensor));
  EXPECT_FALSE(at::equal(other, b.parameters[0].tensor));
}

TEST_P(EveryOptimizer, StatesAreAllThatAResumedRunNeeds) {
  Bench straight = bench(), stopped = bench(), resumed = bench();
  for (uint64_t step = 0; step < 4; ++step) {
    for (Bench* b : {&straight, step < 2 ? &stopped : &resumed}) {
      b->set_gradients(step, tested().gradients);
      b->optimizer->step({.lr = b->lr});
    }
    if (step != 1) continue;
    const auto copy = [](const std::vector<NamedTensor>& from, const std::vector<NamedTensor>& to) {
      for (size_t i = 0; i < from.size(); ++i) to[i].tensor.copy_(from[i].tensor);
    };
    copy(stopped.parameters, resumed.parameters);
    copy(stopped.optimizer->states(), resumed.optimizer->states());
    resumed.optimizer->set_num_steps(2);
  }
  expect_same(straight.parameters, resumed.parameters);
  expect_same(straight.optimizer->states(), resumed.optimizer->states());
}

TEST_P(EveryOptimizer, StatesOfARangeAreThoseOfItsParameters) {
  const Bench b = bench();
  std::vector<NamedTensor> joined = b.optimizer->states({0, 2});
  for (const NamedTensor& state : joined)
    EXPECT_TRUE(state.name.starts_with("p0.") || state.name.starts_with("p1.")) << state.name;
  for (NamedTensor& state : b.optimizer->states({2, 4})) joined.push_back(std::move(state));
  expect_same(joined, b.optimizer->states());
}

TEST_P(EveryOptimizer, MetaAllocatesWhatCpuDoes) {
  std::vector<memory::Snapshot> peaks;
  for (const at::Device device : {at::Device(at::kCPU), at::Device(at::kMeta)}) {
    memory::Ledger& ledger = device.is_meta() ? memory::meta_ledger() : memory::cpu_ledger();
    const int64_t before = ledger.allocated();
    {
      Bench b = bench(device);
      b.set_gradients(1, tested().gradients);
      ledger.reset_peak();
      b.optimizer->step({.lr = b.lr});
      peaks.push_back(ledger.at_peak());
      peaks.back().allocated -= before;
    }
    EXPECT_EQ(ledger.allocated(), before);
  }
  EXPECT_EQ(peaks[0].allocated, peaks[1].allocated);
  EXPECT_EQ(peaks[0].by_category, peaks[1].by_category);
}

TEST_P(EveryOptimizer, AnUpdateBelongsToAStepAndToTheList) {
  Bench b = bench();
  EXPECT_THROW(b.optimizer->update(b.optimizer->all(), {}), InternalError);
  b.optimizer->begin_step();
  EXPECT_THROW(b.optimizer->update({0, 5}, {}), InternalError);
  EXPECT_THROW(b.optimizer->update({2, 1}, {}), InternalError);
}

INSTANTIATE_TEST_SUITE_P(All, EveryOptimizer, ::testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace snug::optim
