// What every optimizer owes: ranges give what one sweep gives, gradients may be of another type,
// what has no gradient stays, states are all that a resumed run needs, and meta allocates what cpu
// does.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "core/kernels/optimizers.h"
#include "core/ops/device/device.h"
#include "core/optim/element_wise.h"
#include "support/source_dir.h"
#include "unit/core/optim/optim_testing.h"

namespace snug::optim {
namespace optimizer_test {

recipe::OptimizerOptions sgd_with_momentum() {
  recipe::OptimizerOptions options = options_of("sgd");
  options.momentum = 0.9;
  return options;
}

Case with(Case c, void (*change)(recipe::OptimizerOptions&)) {
  change(c.options);
  return c;
}

void add_masters(recipe::OptimizerOptions& options) { options.master_weights = true; }
void round_by_chance(recipe::OptimizerOptions& options) { options.stochastic_rounding = true; }

std::vector<Case> all_cases() {
  return {
      {"adamw", options_of("adamw")},
      {"adamw_bf16", options_of("adamw"), at::kBFloat16, at::kBFloat16},
      {"adamw_f16", options_of("adamw"), at::kHalf, at::kHalf},
      {"adamw_host_twin", options_of("adamw"), at::kFloat, at::kBFloat16},
      with({"adamw_masters", options_of("adamw"), at::kBFloat16, at::kBFloat16}, add_masters),
      with({"adamw_f16_masters", options_of("adamw"), at::kHalf, at::kHalf}, add_masters),
      with({"adamw_stochastic", options_of("adamw"), at::kBFloat16, at::kBFloat16},
           round_by_chance),
      {"adamw_8bit", options_of("adamw_8bit")},
      {"adamw_8bit_bf16", options_of("adamw_8bit"), at::kBFloat16, at::kBFloat16},
      with({"adamw_8bit_masters", options_of("adamw_8bit"), at::kHalf, at::kHalf}, add_masters),
      with({"adamw_8bit_stochastic", options_of("adamw_8bit"), at::kBFloat16, at::kBFloat16},
           round_by_chance),
      {"adafactor", options_of("adafactor")},
      {"adafactor_bf16", options_of("adafactor"), at::kBFloat16, at::kBFloat16},
      with({"adafactor_masters", options_of("adafactor"), at::kBFloat16, at::kBFloat16},
           add_masters),
      {"lion", options_of("lion")},
      {"lion_bf16", options_of("lion"), at::kBFloat16, at::kBFloat16},
      with({"lion_stochastic", options_of("lion"), at::kBFloat16, at::kBFloat16}, round_by_chance),
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

// Bytes of states a parameter, as docs/guide/optimizers.md writes them.
std::string measured_bytes(const recipe::OptimizerOptions& options, at::ScalarType weights) {
  if (options.master_weights && weights == at::kFloat) return "refused";
  constexpr int64_t kSide = 512;
  const Bench b({"", options, weights}, at::kMeta, {{kSide, kSide}});
  const auto category = static_cast<size_t>(memory::Category::Optimizer);
  const auto bytes = static_cast<double>(memory::meta_ledger().by_category()[category]);
  return fmt::format("{:.2f}", bytes / (kSide * kSide));
}

TEST(States, TheGuidesTableIsMeasured) {
  memory::install_allocators();
  const std::string page = read_file(tests::source_dir() / "docs/guide/optimizers.md");
  const auto changed = [](recipe::OptimizerOptions options, auto change) {
    change(options);
    return options;
  };
  const std::vector<std::pair<std::string, recipe::OptimizerOptions>> rows = {
      {"--optimizer adamw", options_of("adamw")},
      {"--optimizer adamw --optimizer.state_dtype float32",
       changed(options_of("adamw"), [](auto& o) { o.state_dtype = "float32"; })},
      {"--optimizer adamw --optimizer.state_dtype bfloat16",
       changed(options_of("adamw"), [](auto& o) { o.state_dtype = "bfloat16"; })},
      {"--optimizer adamw --optimizer.master_weights true",
       changed(options_of("adamw"), add_masters)},
      {"--optimizer adamw_8bit", options_of("adamw_8bit")},
      {"--optimizer adamw_8bit --optimizer.master_weights true",
       changed(options_of("adamw_8bit"), add_masters)},
      {"--optimizer lion", options_of("lion")},
      {"--optimizer adafactor", options_of("adafactor")},
      {"--optimizer SGD --optimizer.momentum 0.9", sgd_with_momentum()},
      {"--optimizer SGD", options_of("sgd")}};
  for (const auto& [words, options] : rows) {
    std::string row = fmt::format("| `{}` |", words);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
      row += fmt::format(" {} |", measured_bytes(options, type));
    EXPECT_NE(page.find(row), std::string::npos) << "not in the page: " << row;
  }
}

TEST(States, TypeIsTheWeightsOrTheOneAskedFor) {
  const auto type_of = [](const char* asked, at::ScalarType weights) {
    recipe::OptimizerOptions options = options_of("adamw");
    options.state_dtype = asked;
    const Bench b({"", options, weights}, at::kCPU, {{4}});
    return b.optimizer->states()[0].tensor.scalar_type();
  };
  EXPECT_EQ(type_of("auto", at::kFloat), at::kFloat);
  EXPECT_EQ(type_of("auto", at::kBFloat16), at::kBFloat16);
  EXPECT_EQ(type_of("auto", at::kHalf), at::kFloat);
  EXPECT_EQ(type_of("float32", at::kBFloat16), at::kFloat);
  EXPECT_EQ(type_of("bfloat16", at::kFloat), at::kBFloat16);
}

// bfloat16 weights with masters are a float32 run, rounded.
TEST(Masters, AreAFloat32Run) {
  recipe::OptimizerOptions options = options_of("adamw");
  options.state_dtype = "float32";
  Bench exact({"", options, at::kFloat}, at::kCPU, kShapes);
  options.master_weights = true;
  Bench masters({"", options, at::kBFloat16}, at::kCPU, kShapes);
  for (size_t i = 0; i < kShapes.size(); ++i)
    exact.parameters[i].tensor.copy_(masters.parameters[i].tensor);
  for (uint64_t step = 0; step < 4; ++step) {
    for (Bench* b : {&exact, &masters}) {
      b->set_gradients(step, at::kBFloat16);
      b->optimizer->step({.lr = 1e-4});
    }
  }
  size_t found = 0;
  for (const NamedTensor& state : masters.optimizer->states()) {
    if (!state.name.ends_with(".master")) continue;
    EXPECT_TRUE(at::equal(state.tensor, exact.parameters[found].tensor)) << state.name;
    EXPECT_TRUE(at::equal(masters.parameters[found].tensor, state.tensor.to(at::kBFloat16)));
    ++found;
  }
  EXPECT_EQ(found, kShapes.size());
}

// What a checkpoint holds before the first update, and that float32 weights have none.
TEST(Masters, StartAsTheWeights) {
  recipe::OptimizerOptions options = options_of("adamw");
  options.master_weights = true;
  const Bench b({"", options, at::kBFloat16}, at::kCPU, {{7}});
  EXPECT_EQ(b.optimizer->states().back().name, "p0.master");
  EXPECT_TRUE(
      at::equal(b.optimizer->states().back().tensor, b.parameters[0].tensor.to(at::kFloat)));
  EXPECT_EQ(Bench({"", options, at::kFloat}, at::kCPU, {{7}}).optimizer->states().size(), 2);
}

// Updates of a thousandth of a bfloat16's spacing are lost in rounding to nearest and kept on
// average by chance, differently for another seed.
TEST(StochasticRounding, KeepsSmallUpdates) {
  const auto mean_after = [](bool by_chance, uint64_t seed) {
    recipe::OptimizerOptions options = options_of("sgd");
    options.stochastic_rounding = by_chance;
    const at::Tensor weight = at::ones({20000}, at::kBFloat16);
    const auto optimizer = make_optimizer(options, {{"w", weight}}, seed);
    weight.mutable_grad() = at::ones({20000}, at::kBFloat16);
    for (int step = 0; step < 100; ++step) optimizer->step({.lr = 1e-5});
    return weight.to(at::kDouble).mean().item<double>();
  };
  EXPECT_EQ(mean_after(false, 1), 1.0);
  EXPECT_NEAR(mean_after(true, 1), 1 - 100 * 1e-5, 1e-4);
  EXPECT_EQ(mean_after(true, 1), mean_after(true, 1));
  EXPECT_NE(mean_after(true, 1), mean_after(true, 2));
}

// A name in the table without an algorithm would be found by the run that takes it.
TEST(Optimizers, EachNameHasOne) {
  for (const std::string_view word : recipe::kWords<recipe::OptimizerName>) {
    recipe::Recipe recipe;
    recipe.optimizer = recipe::optimizer_defaults(word);
    recipe::resolve_optimizer(recipe);
    const at::Tensor weight = at::empty({4, 4}, at::TensorOptions(at::kMeta));
    EXPECT_NE(make_optimizer(recipe.optimizer, {{"w", weight}}), nullptr) << word;
  }
}

// The portable loop against the kernels made of the same formula, in every type.
TEST(PortableOptimizer, StepsLikeKernels) {
  const auto expect_alike = [](const Case& c, const MakeOptimizer& make) {
    SCOPED_TRACE(c.name);
    Bench kernels(c, at::kCPU, {{5, 7}, {13}}), own(c, at::kCPU, {{5, 7}, {13}});
    own.optimizer = make(c.options, own.parameters, 0, {});
    for (uint64_t step = 0; step < 3; ++step)
      for (Bench* bench : {&kernels, &own}) {
        bench->set_gradients(step, c.gradients);
        bench->optimizer->step({.lr = bench->lr, .gradient_scale = 0.5});
      }
    const auto expect_near = [](const auto& a, const auto& b) {
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i) {
        EXPECT_EQ(a[i].name, b[i].name);
        const double ulp = a[i].tensor.scalar_type() == at::kFloat ? 1e-6 : 1.0 / 128;
        EXPECT_TRUE(at::allclose(a[i].tensor, b[i].tensor, ulp, 1e-7)) << a[i].name;
      }
    };
    expect_near(kernels.parameters, own.parameters);
    expect_near(kernels.optimizer->states(), own.optimizer->states());
  };
  for (const Case& c : all_cases()) {
    if (c.options.stochastic_rounding) continue;
    if (c.options.name == recipe::OptimizerName::Lion) expect_alike(c, portable<kernels::Lion>());
    if (c.options.name == recipe::OptimizerName::Sgd) expect_alike(c, portable<kernels::Sgd>());
  }
}

TEST(PortableOptimizer, SaysWhatItCannotDo) {
  const auto expect_refused = [](const recipe::OptimizerOptions& options, const char* words) {
    const at::Tensor weight = at::empty({4}, at::TensorOptions(at::kMeta));
    try {
      portable<kernels::Sgd>()(options, {{"w", weight}}, 0, {});
      ADD_FAILURE() << words;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  recipe::OptimizerOptions options = options_of("sgd");
  options.nesterov = true;
  expect_refused(options, "sgd: Nesterov needs momentum above 0");
  options = options_of("sgd");
  options.stochastic_rounding = true;
  expect_refused(options, "rounds to nearest only");
  const ops::StandInGuard gpu(at::kCUDA);
  expect_refused(options_of("sgd"), "on a CPU only");
}

INSTANTIATE_TEST_SUITE_P(All, EveryOptimizer, ::testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace optimizer_test
}  // namespace snug::optim
