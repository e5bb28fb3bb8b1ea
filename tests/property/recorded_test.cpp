// Passes that are recorded and launched as CUDA graphs train like those that are not, to the bit,
// and take what their plan says. On a CPU nothing is recorded.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/exec/recorded_passes.h"
#include "plan/candidate.h"
#include "plan/predict.h"
#include "support/fixed_order.h"
#include "support/pairs.h"
#include "support/tiny_training.h"

namespace snug {
namespace recorded_test {

using tests::eight_in;
using tests::tiny_model;
using tests::tiny_recipe;
using tests::TinyRun;

class Recorded : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }
  void SetUp() override {
    if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
  }
};

// Samples of one length, each with tokens of its own.
data::SampleStore alike_samples(const data::Reading& reading = {}, int count = 16) {
  const data::SampleStore drawn = tests::random_samples(8, 24, 5, reading);
  data::SampleStore store;
  for (int shift = 0; shift < count; ++shift) {
    data::Sample sample = drawn.sample(drawn.longest_samples(1).front());
    for (size_t t = 0; t < sample.ids.size(); ++t)
      if (sample.labels[t] >= 0)
        sample.ids[t] = sample.labels[t] = (sample.ids[t] + 5 * shift) % 96;
    store.append(sample);
  }
  return store;
}

// The samples of step `step`: every other step has the other tokens.
engine::SampleIndices samples_of(int step, int64_t micro_batch_size) {
  engine::SampleIndices micro_batches = eight_in(micro_batch_size);
  for (auto& micro_batch : micro_batches)
    for (int64_t& sample : micro_batch) sample += step % 2 == 0 ? 0 : 8;
  return micro_batches;
}

struct Trained {
  std::vector<double> numbers;  // losses and norms
  std::vector<at::Tensor> weights;
  exec::RecordedPasses::Counts counts;
};

void add_weights(const TinyRun& run, std::vector<at::Tensor>& weights) {
  for (nn::Unit* unit : run.engine.units)
    for (const nn::Parameter* parameter : unit->parameters())
      if (parameter->trained) weights.push_back(parameter->value.cpu().clone());
}

Trained train(recipe::Recipe recipe, bool graphs, const std::string& shape, int steps = 6,
              const std::shared_ptr<const nn::Objective>& objective = nullptr) {
  const tests::FixedOrder fixed_order;
  recipe.cuda_graphs = graphs;
  data::SampleStore samples =
      alike_samples(tiny_model(shape)->reads(), objective == nullptr ? 16 : 32);
  if (objective != nullptr) tests::add_columns(samples, 2);
  TinyRun run(recipe, samples, shape, tests::test_device(), dist::single_mesh(), objective);
  Trained result;
  for (int step = 0; step < steps; ++step) {
    const engine::StepResult of_step =
        run.step(samples_of(step, recipe.train.micro_batch_size), 1e-2);
    result.numbers.push_back(of_step.loss);
    result.numbers.push_back(of_step.grad_norm);
  }
  add_weights(run, result.weights);
  if (auto* recorded = run.engine.executor->recorded()) result.counts = recorded->counts();
  return result;
}

void expect_same(const Trained& is, const Trained& should) {
  EXPECT_EQ(is.numbers, should.numbers);
  ASSERT_EQ(is.weights.size(), should.weights.size());
  for (size_t i = 0; i < is.weights.size(); ++i)
    EXPECT_TRUE(at::equal(is.weights[i], should.weights[i])) << "weight " << i;
}

struct Case {
  const char* name;
  void (*change)(recipe::Recipe&);
  const char* shape = "llama";
};

constexpr Case kCases[] = {
    {"plain", [](recipe::Recipe&) {}},
    {"one micro-batch", [](recipe::Recipe& r) { r.train.micro_batch_size = 8; }},
    {"clipped, 8-bit states",
     [](recipe::Recipe& r) {
       r.train.max_norm = 0.1;
       r.optimizer.name = "adamw_8bit";
     }},
    {"noise on embeddings", [](recipe::Recipe& r) { r.train.neftune_noise_alpha = 5; }},
    {"bf16-true", [](recipe::Recipe& r) { r.precision = "bf16-true"; }},
    {"bf16-mixed, selective",
     [](recipe::Recipe& r) {
       r.precision = "bf16-mixed";
       r.activation_checkpointing = "selective";
     }},
    {"16-mixed, every:2",
     [](recipe::Recipe& r) {
       r.precision = "16-mixed";
       r.activation_checkpointing = "every:2";
     }},
    {"padded", [](recipe::Recipe& r) { r.data.packing = false; }},
    {"adapters with dropout beside 4 bits",
     [](recipe::Recipe& r) {
       r.lora = {.enabled = true, .r = 4, .dropout = 0.3};
       r.quantize = "bnb.nf4";
       r.activation_checkpointing = "all";
     }},
    {"dropout", [](recipe::Recipe& r) { r.model.dropout = 0.2; }, "gpt2"},
    {"relative biases and dropout", [](recipe::Recipe& r) { r.model.dropout = 0.2; }, "t5"},
    {"windows", [](recipe::Recipe& r) { r.precision = "bf16-true"; }, "gemma3"},
    {"pictures", [](recipe::Recipe& r) { r.precision = "bf16-true"; }, "blip2-opt"},
};

recipe::Recipe recipe_of(const Case& c) {
  recipe::Recipe recipe = tiny_recipe();
  recipe.train.micro_batch_size = 2;
  c.change(recipe);
  return recipe;
}

TEST_F(Recorded, TrainsAsWithout) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const recipe::Recipe recipe = recipe_of(c);
    const Trained with = train(recipe, true, c.shape);
    expect_same(with, train(recipe, false, c.shape));
    if (!tests::test_device().is_cuda()) continue;
    // From the third step on all of them.
    const int64_t in_step = 8 / recipe.train.micro_batch_size;
    EXPECT_EQ(with.counts.recorded, std::min<int64_t>(in_step, 2));
    EXPECT_EQ(with.counts.launched, 4 * in_step);
    EXPECT_EQ(with.counts.all, 6 * in_step);
  }
}

// The third step records; the largest micro-batch's passes come in all of them.
// What an objective reads beside the tokens differs between micro-batches that are alike.
TEST_F(Recorded, TrainsPairsAsWithout) {
  const auto pairs = std::make_shared<tests::Pairs>();
  recipe::Recipe recipe = tiny_recipe();
  recipe.train.micro_batch_size = 4;
  const Trained with = train(recipe, true, "llama", 6, pairs);
  expect_same(with, train(recipe, false, "llama", 6, pairs));
  EXPECT_EQ(with.counts.launched > 0, tests::test_device().is_cuda());
}

TEST_F(Recorded, PlanIsTheMeasurementToTheByte) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    recipe::Recipe recipe = recipe_of(c);
    recipe.cuda_graphs = true;
    recipe.train.micro_batch_size = 4;
    const auto model = tiny_model(c.shape);
    const data::SampleStore samples = alike_samples(model->reads());
    const std::vector<int64_t> longest = samples.longest_samples(recipe.train.micro_batch_size);
    const int64_t planned =
        plan::predict(
            *model, recipe,
            data::make_micro_batch(samples, longest, tests::batch_options(recipe, *model)), 128,
            {.device = tests::test_device().type()})
            .peak_allocated;
    const int64_t before = tests::test_ledger().allocated();
    tests::test_ledger().reset_peak();
    {
      TinyRun run(recipe, samples, c.shape);
      for (int step = 0; step < 4; ++step) run.step({longest, longest}, 1e-2);
      EXPECT_EQ(planned, tests::test_ledger().at_peak().allocated - before);
      if (auto* recorded = run.engine.executor->recorded()) {
        EXPECT_EQ(recorded->counts().launched, 4);
      }
    }
    EXPECT_EQ(tests::test_ledger().allocated(), before) << "something is left";
  }
}

// Where an allocation is refused while a pass is recorded, it runs as always; what follows is
// recorded again.
TEST_F(Recorded, RunsAsAlwaysAfterARefusal) {
  recipe::Recipe recipe = tiny_recipe();
  recipe.train.micro_batch_size = 4;
  recipe.activation_checkpointing = "selective";
  const Trained should = train(recipe, false, "llama", 6);
  recipe.cuda_graphs = true;
  const data::SampleStore samples = alike_samples();
  const tests::FixedOrder fixed_order;
  for (const int64_t nth : {3, 20, 60, 90, 150, 200}) {
    SCOPED_TRACE(nth);
    Trained is;
    TinyRun run(recipe, samples);
    bool is_tried_again = false;
    for (int step = 0; step < 6; ++step) {
      if (step == 2) tests::test_ledger().refuse_allocation(nth);
      std::optional<engine::StepResult> of_step;
      try {
        of_step = run.step(samples_of(step, 4), 1e-2);
      } catch (const OutOfMemory&) {
        // In a micro-batch's own tensors, or where nothing is recorded.
        is_tried_again = true;
        of_step = run.step(samples_of(step, 4), 1e-2);
      }
      is.numbers.push_back(of_step->loss);
      is.numbers.push_back(of_step->grad_norm);
    }
    tests::test_ledger().refuse_allocation(0);
    add_weights(run, is.weights);
    expect_same(is, should);
    if (auto* recorded = run.engine.executor->recorded()) {
      EXPECT_GE(recorded->counts().launched, 4);
      EXPECT_TRUE(is_tried_again || recorded->counts().launched < 8) << "nothing was refused";
    }
  }
}

// Looking for the first number that is none runs the step's units one by one.
TEST_F(Recorded, IsPausedToLookForNumbersThatAreNone) {
  recipe::Recipe recipe = tiny_recipe();
  recipe.train.micro_batch_size = 4;
  const Trained should = train(recipe, false, "llama", 6);
  recipe.cuda_graphs = true;
  const data::SampleStore samples = alike_samples();
  const tests::FixedOrder fixed_order;
  TinyRun run(recipe, samples);
  Trained is;
  for (int step = 0; step < 6; ++step) {
    const engine::StepResult of_step = run.step(samples_of(step, 4), 1e-2);
    is.numbers.push_back(of_step.loss);
    is.numbers.push_back(of_step.grad_norm);
    EXPECT_EQ(run.run.first_non_finite(),
              "the same step, run again, has only finite numbers in every unit");
  }
  add_weights(run, is.weights);
  expect_same(is, should);
}

// Steps of other micro-batches between those that are recorded change nothing and take no more than
// is planned: what is recorded is given up before.
TEST_F(Recorded, LeavesOthersAsTheyAre) {
  recipe::Recipe recipe = tiny_recipe();
  recipe.train.micro_batch_size = 4;
  const data::SampleStore samples = alike_samples();
  const std::vector<int64_t> longest = samples.longest_samples(4);
  std::vector<Trained> both(2);
  const tests::FixedOrder fixed_order;
  for (const bool graphs : {false, true}) {
    recipe.cuda_graphs = graphs;
    const int64_t planned =
        plan::predict(
            *tiny_model(), recipe,
            data::make_micro_batch(samples, longest, tests::batch_options(recipe, *tiny_model())),
            128, {.device = tests::test_device().type()})
            .peak_allocated;
    const int64_t before = tests::test_ledger().allocated();
    TinyRun run(recipe, samples);
    tests::test_ledger().reset_peak();
    const auto take_step = [&](const engine::SampleIndices& micro_batches) {
      both[graphs].numbers.push_back(run.step(micro_batches, 1e-2).loss);
    };
    for (int step = 0; step < 5; ++step) take_step(samples_of(step, 4));
    take_step(samples_of(0, 2));
    for (int step = 0; step < 5; ++step) take_step(samples_of(step, 4));
    take_step({samples_of(0, 4)[0], samples_of(0, 2)[1]});
    for (int step = 0; step < 3; ++step) take_step(samples_of(step, 4));
    EXPECT_LE(tests::test_ledger().at_peak().allocated - before, planned);
    add_weights(run, both[graphs].weights);
    if (auto* recorded = run.engine.executor->recorded()) {
      EXPECT_EQ(recorded->counts().launched, 2 * (3 + 4 + 2));
      EXPECT_EQ(recorded->counts().recorded, 2 * 3);
    }
  }
  expect_same(both[1], both[0]);
}

// Which rows an expert has, only the host knows.
TEST_F(Recorded, RefusesExperts) {
  recipe::Recipe recipe = tiny_recipe();
  recipe.cuda_graphs = true;
  const auto model = tiny_model("qwen3-moe");
  const data::SampleStore samples = alike_samples();
  const data::MicroBatch largest = plan::largest_micro_batch({samples}, recipe, 8);
  try {
    plan::predict(*model, recipe, largest, 128, {.device = at::kCUDA});
    ADD_FAILURE() << "they were recorded";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("cuda_graphs = true: with this model the host waits"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace recorded_test
}  // namespace snug
