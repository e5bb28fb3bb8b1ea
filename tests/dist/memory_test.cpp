// What each of many processes measures is what was planned for it, to the byte, whatever the
// strategy and the techniques.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "engine/strategy.h"
#include "plan/predict.h"
#include "plan/suggest.h"
#include "ranks_main.h"
#include "support/random_recipe.h"

namespace snug {
namespace {

constexpr const char* kStrategies[] = {"ddp", "zero1", "zero2", "fsdp", "hybrid"};

// What several processes refuse, or what is only refused with shards, is left out.
recipe::Recipe shared_recipe(std::mt19937& random) {
  recipe::Recipe recipe = tests::random_recipe(random);
  recipe.expert_streaming = false;
  recipe.strategy = kStrategies[random() % 5];
  recipe.delayed_parameter_update = false;
  if (recipe.optimizer.name == "adafactor") recipe.optimizer.name = "adamw";
  if (recipe.strategy == "ddp" || recipe.strategy.starts_with("zero"))
    recipe.weight_streaming = false;
  recipe.forward_prefetch = random() % 2;
  recipe.backward_prefetch = random() % 2;
  recipe.overlap_reduction = random() % 2;
  return recipe;
}

// The same with a pipeline of as many ranks as there are.
recipe::Recipe staged_recipe(std::mt19937& random, const std::string& shape) {
  recipe::Recipe recipe = shared_recipe(random);
  const bool has_tied_head = shape == "qwen2" || shape == "llama3-rope";
  if (has_tied_head && !recipe.lora.enabled) recipe.optimizer_in_backward = false;
  const bool shards = recipe.strategy != "ddp";
  recipe.mesh = test::world().size() == 2 ? "pp=2"
                : random() % 3 == 0       ? "pp=4"
                : shards                  ? "pp=2,fsdp=2"
                                          : "pp=2,dp=2";
  if (recipe.mesh.find("fsdp") == std::string::npos) recipe.strategy = "auto";
  if (recipe.mesh == "pp=2,dp=2") recipe.strategy = "ddp";
  recipe.pipeline_schedule = random() % 3 == 0 ? "gpipe" : "1f1b";
  recipe.pipeline_interleave = recipe.mesh == "pp=4" ? 1 : 1 + static_cast<int64_t>(random() % 2);
  return recipe;
}

// The same with experts on as many ranks as there are, or on two.
recipe::Recipe spread_recipe(std::mt19937& random, const std::string& shape) {
  recipe::Recipe recipe = staged_recipe(random, shape);
  const bool shards = recipe.mesh == "pp=2,fsdp=2";
  recipe.mesh = test::world().size() == 2 ? "ep=2"
                : shards                  ? "fsdp=2,ep=2"
                : random() % 3 == 0       ? "pp=2,ep=2"
                : random() % 2 == 0       ? "dp=2,ep=2"
                                          : "ep=4";
  if (!shards) {
    recipe.strategy = "auto";
    recipe.weight_streaming = false;
  }
  recipe.pipeline_interleave = 1;
  if (recipe.mesh != "pp=2,ep=2") recipe.pipeline_schedule = "1f1b";
  return recipe;
}

using Shapes = std::vector<std::string>;
const Shapes kDense = {"llama", "llama3-rope", "llama-bias", "mistral", "qwen2"};
const Shapes kMixtures = {"olmoe", "mixtral", "mixtral-balanced"};

void expect_plan_is_measurement(
    const std::function<recipe::Recipe(std::mt19937&, const std::string& shape)>& make_recipe,
    int trials, const Shapes& shapes = kDense) {
  std::mt19937 random(21);
  for (int trial = 0; trial < trials; ++trial) {
    const std::string shape = shapes[random() % shapes.size()];
    recipe::Recipe recipe = make_recipe(random, shape);
    const data::SampleStore samples = tests::with_objective(recipe, 16, 60, random);
    SCOPED_TRACE(fmt::format("trial {}: {} {} {} {}, {}", trial, recipe.strategy, recipe.mesh,
                             recipe.pipeline_schedule, recipe.pipeline_interleave,
                             tests::describe(recipe, shape)));
    const auto model = tests::tiny_model(shape);
    const int64_t size = recipe.train.micro_batch_size;
    const std::vector<int64_t> longest = samples.longest_samples(size, recipe.data.packing);
    const auto mesh = test::world().make_mesh(
        engine::strategy_of(recipe, test::world().size(), 2).mesh, at::kCPU);
    // The longest pair need not have the longest answer or most targets, nor a block most
    // documents: a plan joins them.
    const data::MicroBatch largest =
        samples.documents_per_sample() > 1 || samples.is_in_blocks()
            ? data::make_micro_batch(samples, longest, tests::batch_options(recipe, *model))
            : plan::largest_micro_batch({.samples = samples, .reading = model->reads()}, recipe,
                                        size);
    const plan::Prediction predicted =
        plan::predict(*model, recipe, largest, 128,
                      {.others = tests::others_batch(samples, longest, recipe, *model),
                       .mesh = dist::planned_mesh(mesh->shape(), mesh->rank())});
    memory::Ledger& ledger = memory::cpu_ledger();
    memory::Ledger& host = memory::cpu_host_ledger();
    const int64_t before = ledger.allocated();
    const int64_t host_before = host.allocated();
    ledger.reset_peak();
    host.reset_peak();
    {
      tests::TinyRun run(recipe, samples, shape, at::kCPU, mesh);
      const auto count =
          static_cast<size_t>(plan::micro_batches_that_matter(recipe, mesh->shape()));
      run.step(engine::SampleIndices(count, longest), 1e-2);
    }
    EXPECT_EQ(predicted.peak_allocated, ledger.at_peak().allocated - before);
    EXPECT_EQ(predicted.peak_host, host.at_peak().allocated - host_before);
    EXPECT_EQ(ledger.allocated(), before) << "bytes left behind";
    EXPECT_EQ(host.allocated(), host_before) << "bytes left on the host";
  }
}

TEST(ManyRanksMemory, PlanIsTheMeasurementToTheByte) {
  expect_plan_is_measurement(
      [](std::mt19937& random, const std::string& /*shape*/) { return shared_recipe(random); },
      150);
}

TEST(ManyRanksMemory, PlanOfAStageIsTheMeasurementToTheByte) {
  expect_plan_is_measurement(staged_recipe, 120);
}

TEST(ManyRanksMemory, PlanOfSpreadExpertsIsTheMeasurementToTheByte) {
  expect_plan_is_measurement(spread_recipe, 80, kMixtures);
}

}  // namespace
}  // namespace snug
