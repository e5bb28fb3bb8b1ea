// What must hold for memory: the plan is the measurement, to the byte; the budget is never passed;
// a refusal at any allocation leaves a usable process; and nothing stays behind.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <numeric>
#include <random>

#include "base/error.h"
#include "core/memory/disk_file.h"
#include "engine/steps/phases.h"
#include "engine/updaters.h"
#include "plan/predict.h"
#include "plan/suggest.h"
#include "support/case_sample.h"
#include "support/random_recipe.h"
#include "support/source_dir.h"
#include "support/tiny_training.h"

namespace snug {
namespace {

using tests::describe;
using tests::eight_in;
using tests::model_for;
using tests::random_recipe;
using tests::random_samples;
using tests::tiny_model;
using tests::tiny_recipe;
using tests::TinyRun;

class Memory : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }
  void SetUp() override {
    if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
  }
};

void expect_plan_is_the_measurement(const recipe::Recipe& recipe, const std::string& shape,
                                    const data::SampleStore& samples) {
  SCOPED_TRACE(describe(recipe, shape));
  const int64_t size = recipe.train.micro_batch_size;
  const std::vector<int64_t> longest = samples.longest_samples(size, recipe.data.packing);
  const auto model = model_for(recipe, shape);
  const auto plan_of = [&](const data::MicroBatch& batch) {
    return plan::predict(*model, recipe, batch, 128,
                         {.device = tests::test_device().type(),
                          .others = tests::others_batch(samples, longest, recipe, *model)});
  };
  plan::Prediction predicted = plan_of(
      plan::largest_micro_batch({.samples = samples, .reading = model->reads()}, recipe, size));
  if (samples.documents_per_sample() > 1 || samples.is_in_blocks()) {
    // The longest pair need not have the longest answer or most targets, nor a block most
    // documents: the plan joins them.
    const plan::Prediction most = predicted;
    predicted =
        plan_of(data::make_micro_batch(samples, longest, tests::batch_options(recipe, *model)));
    EXPECT_GE(most.peak_allocated, predicted.peak_allocated);
    EXPECT_GE(most.peak_host, predicted.peak_host);
  }
  const int64_t before = tests::test_ledger().allocated();
  const int64_t host_before = memory::cpu_host_ledger().allocated();
  const int64_t disk_before = memory::cpu_disk_ledger().allocated();
  tests::test_ledger().reset_peak();
  memory::cpu_host_ledger().reset_peak();
  {
    TinyRun run(recipe, samples, shape);
    EXPECT_EQ(predicted.on_disk, memory::cpu_disk_ledger().allocated() - disk_before);
    // As many as the plan assumes.
    const auto count = static_cast<size_t>(plan::micro_batches_that_matter(recipe));
    // A thread of its own would take memory whenever it comes to it.
    if (auto* update = dynamic_cast<engine::DelayedUpdate*>(run.engine.updater.get()))
      update->set_in_background(false);
    // A step that is skipped for its overflow would need less than planned.
    run.run.scaler().restore(64, 0);
    const tests::UncountedOnTheHost uncounted;
    for (int step = 0; step < (recipe.delayed_parameter_update ? 2 : 1); ++step)
      run.step(engine::SampleIndices(count, longest), 1e-2);
    run.run.finish();
    uncounted.expect_none();
  }
  tests::expect_planned_peak(predicted.peak_allocated,
                             tests::test_ledger().at_peak().allocated - before, samples);
  EXPECT_EQ(predicted.peak_host + predicted.host_staging,
            memory::cpu_host_ledger().at_peak().allocated - host_before);
  EXPECT_EQ(tests::test_ledger().allocated(), before) << "bytes left behind";
  EXPECT_EQ(memory::cpu_host_ledger().allocated(), host_before) << "bytes left on the host";
  EXPECT_EQ(memory::cpu_disk_ledger().allocated(), disk_before) << "bytes left on disk";
}

TEST_F(Memory, PlanIsTheMeasurementToTheByte) {
  constexpr const char* kShapes[] = {"llama", "llama3-rope", "llama-bias", "mistral", "qwen2"};
  for (const size_t trial : tests::trials_of(300, "plans")) {
    std::mt19937 random = tests::trial_random(11, trial);
    SCOPED_TRACE(fmt::format("trial {}", trial));
    recipe::Recipe recipe = random_recipe(random);
    const std::string shape = kShapes[random() % 5];
    const data::SampleStore samples = tests::with_objective(recipe, 16, 60, random);
    expect_plan_is_the_measurement(recipe, shape, samples);
  }
}

// Of a head that scores documents, beside columns of which a plan without rows knows nothing.
TEST_F(Memory, PlansOfScoresAreTheMeasurementToTheByte) {
  constexpr const char* kShapes[] = {"llama", "gpt2", "gpt-neox", "gemma2", "opt", "qwen3"};
  for (const size_t trial : tests::trials_of(60, "plans of scores")) {
    std::mt19937 random = tests::trial_random(12, trial);
    SCOPED_TRACE(fmt::format("trial {}", trial));
    recipe::Recipe recipe = random_recipe(random);
    const std::string shape = kShapes[random() % std::size(kShapes)];
    if (recipe.lora.enabled) recipe.lora.target_modules = "all-linear";
    recipe.objective = recipe::objective_defaults(random() % 2 == 0 ? "classification" : "reward");
    const data::SampleStore samples = tests::random_answers(16, 60, random(), recipe.objective);
    expect_plan_is_the_measurement(recipe, shape, samples);
  }
}

// Where the host's peak is in an update, whose workspace is there too.
TEST_F(Memory, UpdatesOnTheHostTakeTheirWorkspaceThere) {
  for (const bool in_backward : {false, true}) {
    recipe::Recipe recipe = tiny_recipe();
    recipe.optimizer.name = "adafactor";
    recipe.optimizer_offload = "cpu";
    recipe.optimizer_in_backward = in_backward;
    expect_plan_is_the_measurement(recipe, "llama", random_samples(8, 60, 3));
    if (in_backward) continue;
    recipe.delayed_parameter_update = true;
    expect_plan_is_the_measurement(recipe, "llama", random_samples(8, 60, 3));
  }
}

// All that the operators ask for on cuda, run through on meta; what a GPU measures is another
// test's.
TEST_F(Memory, APlanForCudaNeedsNoDevice) {
  const data::SampleStore samples = random_samples(16, 60, 3);
  for (const char* precision : {"32-true", "bf16-true", "16-true", "bf16-mixed", "16-mixed"}) {
    recipe::Recipe recipe = tiny_recipe();
    recipe.precision = precision;
    const auto largest = plan::largest_micro_batch({samples}, recipe, 8);
    const auto peak_on = [&](at::DeviceType device) {
      return plan::predict(*tiny_model(), recipe, largest, 128, {.device = device}).peak_allocated;
    };
    const int64_t before = memory::meta_ledger().allocated();
    EXPECT_GT(peak_on(at::kCUDA), peak_on(at::kCPU) / 2) << precision;
    EXPECT_LT(peak_on(at::kCUDA), peak_on(at::kCPU) * 4) << precision;
    // Pinned memory that batches are copied from is planned, and is no offloading.
    const auto on_gpu = plan::predict(*tiny_model(), recipe, largest, 128, {.device = at::kCUDA});
    EXPECT_GE(on_gpu.host_staging, 3 * 4 * static_cast<int64_t>(largest.input_ids.size()));
    EXPECT_EQ(on_gpu.peak_host, 0);
    EXPECT_EQ(memory::meta_ledger().allocated(), before) << precision << " left bytes behind";
  }
}

TEST_F(Memory, MoreSamplesNeverTakeLess) {
  const data::SampleStore samples = random_samples(16, 60, 3);
  int64_t last = 0;
  for (int64_t size = 1; size <= 16; ++size) {
    recipe::Recipe recipe = tiny_recipe();
    recipe.train.micro_batch_size = size;
    recipe.train.global_batch_size = size;
    const int64_t peak = plan::predict(*tiny_model(), recipe,
                                       plan::largest_micro_batch({samples}, recipe, size), 128)
                             .peak_allocated;
    EXPECT_GE(peak, last) << "micro-batch " << size;
    last = peak;
  }
}

// Whatever the techniques, adapters on all layers included: on a model whose layers are larger than
// the adapters.
TEST_F(Memory, AdaptersNeverTakeMoreThanAllWeights) {
  const auto model =
      models::model_from_config(tests::source_dir() / "recipes/models/smollm2-135m.json");
  const data::SampleStore samples = random_samples(16, 60, 3);
  for (const size_t trial : tests::trials_of(60, "recipes with adapters")) {
    std::mt19937 random = tests::trial_random(12, trial);
    recipe::Recipe recipe = random_recipe(random);
    SCOPED_TRACE(fmt::format("trial {}: {}", trial, describe(recipe, "smollm2")));
    const auto peak = [&] {
      const auto largest =
          plan::largest_micro_batch({samples}, recipe, recipe.train.micro_batch_size);
      const plan::Prediction p =
          plan::predict(*model, recipe, largest, 128, {.device = tests::test_device().type()});
      return std::pair(p.peak_allocated, p.peak_host);
    };
    recipe.lora.enabled = true;
    if (trial % 2) recipe.lora.target_modules = "all-linear";
    recipe.lora.r = trial % 3 == 0 ? 32 : 8;
    const auto adapters = peak();
    recipe.lora.enabled = false;
    recipe.quantize.clear();
    const auto all = peak();
    // Where the peak is the head's, before there are gradients, the adapters themselves and what
    // they keep of each layer (x·Aᵀ) come on top: 5 and 2 MB for rank 8 on all layers and 480 rows,
    // a larger share where the head takes smaller chunks, as on a GPU, and four times as much for
    // rank 32.
    const double more = recipe.lora.r == 8 ? 1.02 : 1.06;
    EXPECT_LE(adapters.first, all.first * more);
    // Offloaded, x·Aᵀ goes to the host too, a few percent there; all in all it is less.
    EXPECT_LE(adapters.first + adapters.second, (all.first + all.second) * more);
  }
}

TEST_F(Memory, PhasesHoldWhatTheirNamesSay) {
  const data::SampleStore samples = random_samples(8, 40, 5);
  TinyRun run(tiny_recipe(), samples);
  std::vector<report::PhaseRecord> records;
  engine::PhaseRecorder phases(run.engine, records);
  run.run.observe(phases);
  phases.begin_step(0);
  run.step(eight_in(4), 1e-2);
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(records[0].phase, "before_fwd");
  EXPECT_EQ(records[0].gradients, 0);
  EXPECT_GT(records[1].activations, 0);
  EXPECT_EQ(records[2].gradients, records[2].parameters);
  EXPECT_EQ(records[2].activations, 0);
  EXPECT_EQ(records[3].gradients, 0);
  EXPECT_EQ(records[3].optimizer_device, 2 * records[3].parameters);
  for (const report::PhaseRecord& r : records)
    EXPECT_EQ(r.allocated, r.parameters + r.gradients + r.optimizer_device + r.activations +
                               r.workspace + r.communication + r.data)
        << r.phase;
}

// Every allocation of a step, refused once (on a GPU fewer and fewer of the later ones): the step
// fails cleanly, weights are as before, and the same step then succeeds with the loss of a run that
// was never disturbed.
void refuse_each_allocation(const recipe::Recipe& recipe, const char* shape = "llama") {
  SCOPED_TRACE(describe(recipe, shape));
  const data::SampleStore samples = random_samples(8, 24, 5);
  TinyRun undisturbed(recipe, samples, shape);
  const double expected = undisturbed.step(eight_in(4), 1e-2).loss;
  TinyRun run(recipe, samples, shape);
  const int64_t before = tests::test_ledger().allocated();
  const int64_t host_before = memory::cpu_host_ledger().allocated();
  bool refused = true;
  int64_t n = 1;
  for (; refused && n < 5000; n = tests::next_case(n)) {
    tests::test_ledger().refuse_allocation(n);
    refused = false;
    try {
      const double loss = run.step(eight_in(4), 1e-2).loss;
      EXPECT_DOUBLE_EQ(loss, expected);
    } catch (const OutOfMemory&) {
      refused = true;
      EXPECT_EQ(tests::test_ledger().allocated(), before) << "after refusing allocation " << n;
      EXPECT_EQ(memory::cpu_host_ledger().allocated(), host_before) << "refused allocation " << n;
    }
  }
  tests::test_ledger().refuse_allocation(0);
  EXPECT_GT(n, 100) << "the step should have made more allocations than that";
  EXPECT_LT(n, 5000);
}

TEST_F(Memory, WeightsAndStatesAreTheirUnits) {
  for (const char* optimizer : {"adamw", "adamw_8bit", "adafactor"}) {
    recipe::Recipe recipe = tests::tiny_recipe();
    recipe.optimizer.name = optimizer;
    const data::SampleStore samples = random_samples(8, 20, 3);
    const TinyRun run(recipe, samples);
    const auto of_unit = [](const memory::Ledger& ledger, size_t unit, memory::Category category) {
      const auto all = ledger.now().by_unit;
      return unit < all.size() ? all[unit][static_cast<size_t>(category)] : 0;
    };
    const memory::Ledger& ledger = tests::test_ledger();
    for (nn::Unit* unit : run.engine.units) {
      SCOPED_TRACE(fmt::format("{}, {}", optimizer, unit->name()));
      int64_t bytes = 0;
      for (const nn::Parameter* p : unit->parameters())
        bytes += static_cast<int64_t>(p->value.nbytes());
      const auto id = static_cast<size_t>(memory::unit_id(unit->name()));
      EXPECT_GE(of_unit(ledger, id, memory::Category::Parameters), bytes);
      EXPECT_GT(of_unit(ledger, id, memory::Category::Optimizer), 0);
    }
    EXPECT_EQ(of_unit(ledger, 0, memory::Category::Optimizer), 0) << optimizer;
  }
}

TEST_F(Memory, RefusalAtAnyAllocationLeavesAUsableProcess) {
  refuse_each_allocation(tiny_recipe());
}

TEST_F(Memory, RefusalAmidTechniquesLeavesAUsableProcess) {
  recipe::Recipe recipe = tiny_recipe();
  recipe.activation_checkpointing = "selective";
  recipe.activation_offload = true;
  recipe.optimizer_offload = "cpu";
  recipe.weight_streaming = true;
  refuse_each_allocation(recipe);
  recipe.offload_prefetch = "true";
  refuse_each_allocation(recipe);
  recipe.activation_checkpointing = "0";
  recipe.weight_streaming = false;
  refuse_each_allocation(recipe);
  recipe.delayed_parameter_update = true;
  refuse_each_allocation(recipe);
}

// With another one beside it a wait that it forgets is the other's.
TEST_F(Memory, RefusalAmidOneTechniqueLeavesAUsableProcess) {
  recipe::Recipe recipe = tiny_recipe();
  recipe.offload_prefetch = "true";
  recipe.optimizer_offload = "cpu";
  refuse_each_allocation(recipe);
  recipe.weight_streaming = recipe.expert_streaming = true;
  refuse_each_allocation(recipe, "olmoe");
  recipe = tiny_recipe();
  recipe.offload_prefetch = "true";
  recipe.activation_offload = true;
  refuse_each_allocation(recipe);
  recipe.activation_offload = false;
  recipe.weight_streaming = true;
  recipe.lora = {.enabled = true, .r = 4};
  refuse_each_allocation(recipe);
}

// What travels ahead is on the device together with what is in use: a unit's weights or activations
// more, and no more than that.
TEST_F(Memory, PrefetchTakesOneUnitMore) {
  const data::SampleStore samples = random_samples(8, 60, 3);
  const auto categories = [&](const char* prefetch, void (*change)(recipe::Recipe&)) {
    recipe::Recipe recipe = tiny_recipe();
    change(recipe);
    recipe.offload_prefetch = prefetch;
    tests::test_ledger().reset_peak();
    TinyRun run(recipe, samples);
    tests::test_ledger().reset_peak();
    run.step(eight_in(8), 1e-2);
    return tests::test_ledger().category_peaks();
  };
  const auto of = [](const memory::ByCategory& bytes, memory::Category category) {
    return bytes[static_cast<size_t>(category)];
  };
  const auto stream = [](recipe::Recipe& r) {
    r.optimizer_offload = "cpu";
    r.weight_streaming = true;
  };
  const auto model = tiny_model();
  int64_t largest = 0, block = 0, all = 0;
  for (nn::Unit* unit : model->units()) {
    int64_t bytes = 0;
    for (const nn::Parameter* parameter : unit->uses()) bytes += 4 * parameter->num_elements();
    largest = std::max(largest, bytes);
    if (unit == model->units()[1]) block = bytes;
    all += bytes;
  }
  using memory::Category;
  const int64_t alone = of(categories("false", stream), Category::Parameters);
  const int64_t ahead = of(categories("true", stream), Category::Parameters);
  EXPECT_EQ(alone, largest);
  EXPECT_EQ(ahead, largest + block);
  EXPECT_LT(ahead, all);
  const auto activations = [](recipe::Recipe& r) {
    r.activation_checkpointing = "all";
    r.activation_offload = true;
  };
  EXPECT_GT(of(categories("true", activations), Category::Activations),
            of(categories("false", activations), Category::Activations));
  const auto gradients = [](recipe::Recipe& r) { r.optimizer_offload = "cpu"; };
  EXPECT_GT(of(categories("true", gradients), Category::Gradients),
            of(categories("false", gradients), Category::Gradients));
}

TEST_F(Memory, SuggestionsFitTheBudgetTheyWereMadeFor) {
  const data::SampleStore samples = random_samples(16, 60, 3);
  recipe::Recipe recipe = tiny_recipe();
  const auto model = tiny_model();
  const auto largest = plan::largest_micro_batch({samples}, recipe, recipe.train.micro_batch_size);
  const int64_t needed = plan::predict(*model, recipe, largest, 128).peak_allocated;
  const int64_t budget = needed * 3 / 4;
  const auto suggestions =
      plan::suggest(*model, recipe, {samples, 128}, plan::find_profile("cpu", budget));
  ASSERT_FALSE(suggestions.empty());
  for (const plan::Suggestion& s : suggestions) EXPECT_LE(s.peak_allocated, budget) << s.options;
  // Those that keep the training come first.
  for (size_t i = 1; i < suggestions.size(); ++i)
    EXPECT_GE(suggestions[i - 1].same_training, suggestions[i].same_training)
        << suggestions[i].options;
}

TEST_F(Memory, SuggestionsLeaveStatesWhereTheyAre) {
  const data::SampleStore samples = random_samples(16, 60, 3);
  recipe::Recipe recipe = tiny_recipe();
  recipe.optimizer_offload = tests::on_disk();
  const auto model = tiny_model();
  const auto largest = plan::largest_micro_batch({samples}, recipe, recipe.train.micro_batch_size);
  recipe::Recipe streamed = recipe;
  streamed.weight_streaming = true;
  const int64_t budget = plan::predict(*model, streamed, largest, 128).peak_allocated;
  ASSERT_LT(budget, plan::predict(*model, recipe, largest, 128).peak_allocated);
  const auto suggestions =
      plan::suggest(*model, recipe, {samples, 128}, plan::find_profile("cpu", budget));
  ASSERT_FALSE(suggestions.empty());
  bool streams = false;
  for (const plan::Suggestion& s : suggestions) {
    EXPECT_EQ(s.options.find("optimizer_offload"), std::string::npos) << s.options;
    streams |= s.options.find("--weight_streaming") != std::string::npos;
  }
  EXPECT_TRUE(streams);
}

}  // namespace
}  // namespace snug
