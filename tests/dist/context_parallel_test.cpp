// Ranks along the context axis share the tokens of the same samples, and train as one process does:
// same losses, same weights, for packed documents of odd lengths, with dropout, windows, and every
// technique; each takes the memory that was planned, and what is saved goes on on any mesh.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>

#include "engine/exec/policies/sharding.h"
#include "engine/parallel/tensor_parallel.h"
#include "engine/steps/validation.h"
#include "engine/strategy.h"
#include "files/checkpoint/training_checkpoint.h"
#include "plan/predict.h"
#include "plan/suggest.h"
#include "ranks_main.h"
#include "recipe/mesh.h"
#include "support/pairs.h"
#include "support/random_recipe.h"
#include "support/temp_folder.h"
#include "support/tiny_training.h"

namespace snug {
namespace {

namespace fs = std::filesystem;
using tests::random_samples;
using tests::tiny_recipe;
using tests::TinyRun;

constexpr double kLearningRate = 1e-2, kSteps = 20;  // at most

std::shared_ptr<dist::Mesh> mesh_of(const recipe::Recipe& recipe) {
  return test::world().make_mesh(engine::strategy_of(recipe, test::world().size(), 2).mesh,
                                 at::kCPU);
}

// The eight samples in the recipe's micro-batches, this rank's share of them.
std::vector<double> train(TinyRun& run, int steps) {
  const dist::Group& data = run.engine.mesh->data();
  const engine::SampleIndices all = tests::eight_in(run.recipe.train.micro_batch_size);
  const auto share = static_cast<std::ptrdiff_t>(all.size()) / data.size();
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i)
    losses.push_back(
        run.step({all.begin() + data.rank() * share, all.begin() + (data.rank() + 1) * share},
                 kLearningRate)
            .loss);
  return losses;
}

// Relative to the largest weight of each tensor. The softmax hardly sees a bias that all keys
// share: its gradient is rounding, which Adam brings to the size of a step.
void expect_same_weights(const TinyRun& one, const TinyRun& many, double tolerance) {
  std::map<std::string, at::Tensor> expected;
  for (const nn::Parameter* parameter : one.model->parameters())
    expected[parameter->name] = parameter->value.to(at::kDouble);
  for (size_t i = 0; i < many.engine.units.size(); ++i) {
    if (many.engine.sharding != nullptr) many.engine.sharding->open(i);
    for (const nn::Parameter* parameter : many.engine.units[i]->parameters()) {
      const at::Tensor a = expected.at(parameter->name);
      const at::Tensor b = engine::assemble(*parameter, parameter->value.detach()).to(at::kDouble);
      const bool is_key_bias = std::ranges::any_of(
          std::array{"k_proj.bias", "c_attn.bias"},
          [&](const char* ending) { return parameter->name.ends_with(ending); });
      EXPECT_LE((a - b).abs().max().item<double>(),
                is_key_bias ? kSteps * kLearningRate
                            : tolerance * std::max(1e-3, a.abs().max().item<double>()))
          << parameter->name;
    }
    if (many.engine.sharding != nullptr) many.engine.sharding->close(i);
  }
}

struct Case {
  const char* strategy;
  const char* mesh;
  const char* model;
  void (*change)(recipe::Recipe&) = [](recipe::Recipe&) {};
  const char* what = "";
  int64_t micro_batch_size = 2;

  bool fits_here() const {
    recipe::MeshShape shape;
    return recipe::read_mesh(mesh, shape).empty() && shape.num_ranks() == test::world().size();
  }
  bool has(const char* axis) const { return std::string(mesh).find(axis) != std::string::npos; }
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.strategy << " " << c.mesh << ", " << c.model << ", " << c.what << ", micro-batches of "
       << c.micro_batch_size;
}

class ContextParallel : public ::testing::TestWithParam<Case> {};

TEST_P(ContextParallel, TrainsAsOneDoes) {
  const Case& c = GetParam();
  if (!c.fits_here()) GTEST_SKIP() << "another number of ranks";
  const data::SampleStore samples = random_samples(8, 40, 5);
  recipe::Recipe recipe = tiny_recipe();
  recipe.train.micro_batch_size = c.micro_batch_size;
  c.change(recipe);
  TinyRun one(recipe, samples, c.model);
  recipe.strategy = c.strategy;
  recipe.mesh = c.mesh;
  const auto mesh = mesh_of(recipe);
  TinyRun many(recipe, samples, c.model, tests::test_device(), mesh);
  const int steps = recipe.lora.enabled ? 5 : static_cast<int>(kSteps);
  const std::vector<double> expected = train(one, steps);
  const std::vector<double> losses = train(many, steps);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(losses[i], expected[i], 1e-6 * std::max(1.0, expected[i])) << "step " << i;
  expect_same_weights(one, many, c.has("tp=") ? 1e-4 : 2e-5);

  // What was not trained on is seen alike, too.
  const engine::ValidationOptions options{.micro_batch_size = 3};
  const auto alone = engine::validate(*one.engine.executor, *one.batches, 8, options);
  const auto together =
      engine::validate(*many.engine.executor, *many.batches, 8, options, mesh.get());
  EXPECT_EQ(together.tokens, alone.tokens);
  EXPECT_NEAR(together.loss, alone.loss, 1e-5 * std::max(1.0, alone.loss));
}

constexpr auto kClipping = [](recipe::Recipe& r) { r.train.max_norm = 0.5; };
constexpr auto kCheckpointing = [](recipe::Recipe& r) {
  r.activation_checkpointing = "selective";
  r.activation_offload = true;
  r.offload_prefetch = "true";
};
constexpr auto kOffload = [](recipe::Recipe& r) {
  r.optimizer_offload = "cpu";
  r.activation_checkpointing = "all";
};
constexpr auto kInBackward = [](recipe::Recipe& r) {
  r.optimizer_in_backward = true;
  r.train.max_norm = 0.5;
};
constexpr auto kAdapters = [](recipe::Recipe& r) {
  r.lora = {.enabled = true, .r = 4, .dropout = 0.1};
  r.lora.mlp = r.lora.head = true;
};
// Experts with few tokens have small gradients, whose roundings Adam would bring to a step's size.
constexpr auto kInProportion = [](recipe::Recipe& r) { r.optimizer = {.name = "sgd", .lr = 1e-2}; };
constexpr auto kNoise = [](recipe::Recipe& r) { r.train.neftune_noise_alpha = 5; };
constexpr auto kWithoutPacking = [](recipe::Recipe& r) { r.data.packing = false; };
constexpr auto kLossPerMicroBatch = [](recipe::Recipe& r) { r.train.loss_normalization = "micro"; };

// mistral has windows shorter than documents; gpt2 and the opts drop elements and probabilities. A
// micro-batch of one sample may have fewer tokens than there are chunks.
INSTANTIATE_TEST_SUITE_P(
    Pairs, ContextParallel,
    ::testing::Values(Case{"auto", "cp=2", "llama"}, Case{"ddp", "cp=2", "llama"},
                      Case{"zero1", "cp=2", "qwen2"}, Case{"zero2", "cp=2", "mistral"},
                      Case{"fsdp", "cp=2", "gpt2"}, Case{"ddp", "cp=2", "opt-plain"},
                      Case{"fsdp", "cp=2", "opt"}, Case{"fsdp", "cp=2", "llama-bias"},
                      Case{"fsdp", "cp=2", "gemma3"},
                      Case{"fsdp", "cp=2", "gemma4-shared", kInProportion, "SGD"},
                      Case{"fsdp", "cp=2", "deepseek-v3", kInProportion, "SGD"},
                      Case{"fsdp", "cp=2", "gpt-oss", kInProportion, "SGD"},
                      Case{"fsdp", "cp=2", "llama", [](recipe::Recipe&) {}, "accumulation", 1},
                      Case{"fsdp", "cp=2", "gpt2", [](recipe::Recipe&) {}, "all at once", 8},
                      Case{"fsdp", "cp=2", "qwen2", kClipping, "clipping"},
                      Case{"fsdp", "cp=2", "gpt2", kCheckpointing, "recomputed, offloaded"},
                      Case{"zero1", "cp=2", "llama", kOffload, "states offloaded"},
                      Case{"fsdp", "cp=2", "llama", kInBackward, "in backward"},
                      Case{"fsdp", "cp=2", "llama", kAdapters, "adapters"},
                      Case{"fsdp", "cp=2", "llama", kNoise, "noise"},
                      Case{"ddp", "cp=2", "qwen2", kWithoutPacking, "padded"},
                      Case{"fsdp", "cp=2", "qwen2", kLossPerMicroBatch, "loss by micro-batch"}));

INSTANTIATE_TEST_SUITE_P(
    Fours, ContextParallel,
    ::testing::Values(Case{"auto", "cp=4", "llama"}, Case{"ddp", "cp=4", "gpt2"},
                      Case{"fsdp", "cp=4", "mistral", [](recipe::Recipe&) {}, "accumulation", 1},
                      Case{"fsdp", "cp=4", "opt-plain", kAdapters, "adapters"},
                      Case{"fsdp", "fsdp=2,cp=2", "qwen2"}, Case{"fsdp", "dp=2,cp=2", "gpt2"},
                      Case{"ddp", "dp=2,cp=2", "llama", kClipping, "clipping"},
                      Case{"zero1", "dp=2,cp=2", "llama", kClipping, "clipping"},
                      Case{"auto", "cp=2,tp=2", "llama"}, Case{"auto", "cp=2,tp=2", "gpt2"},
                      Case{"ddp", "cp=2,tp=2", "opt-plain",
                           [](recipe::Recipe& r) { r.sequence_parallel = false; }, "whole rows"},
                      Case{"auto", "cp=2,tp=2", "llama", kAdapters, "adapters"},
                      Case{"auto", "cp=2,tp=2", "gpt2", kNoise, "noise"},
                      Case{"auto", "pp=2,cp=2", "llama"}, Case{"zero1", "pp=2,cp=2", "gpt2"},
                      Case{"auto", "pp=2,cp=2", "qwen2",
                           [](recipe::Recipe& r) { r.pipeline_interleave = 2; },
                           "stretches in turn"}));

// Documents whose tokens ranks share, or whose vocabulary, blocks or samples, as objectives see
// them.
TEST(ContextParallelObjectives, TrainAsOneDoes) {
  data::SampleStore pairs = random_samples(16, 40, 5), weighed = pairs, plain = pairs;
  tests::add_columns(pairs, 2);
  tests::add_columns(weighed, 1);
  const std::vector<std::shared_ptr<const nn::Objective>> objectives = {
      std::make_shared<tests::Pairs>(), std::make_shared<tests::MeanOfDocuments>(),
      std::make_shared<tests::WeighedDocuments>()};
  const bool is_pair = test::world().size() == 2;
  const std::vector<const char*> meshes =
      is_pair ? std::vector<const char*>{"cp=2", "tp=2", "pp=2", "dp=2", "fsdp=2"}
              : std::vector<const char*>{"cp=4", "cp=2,tp=2", "pp=2,cp=2", "dp=2,cp=2"};
  for (const char* shape : {"llama", "gpt2"})
    for (const char* mesh : meshes)
      for (size_t o = 0; o < objectives.size(); ++o) {
        const auto& objective = objectives[o];
        const data::SampleStore& samples = *std::array{&pairs, &plain, &weighed}[o];
        const int64_t size = 1 + static_cast<int64_t>(o) % 2;
        SCOPED_TRACE(fmt::format("{} {}, objective {}", shape, mesh, o));
        recipe::Recipe recipe = tiny_recipe();
        recipe.train.micro_batch_size = size;
        TinyRun one(recipe, samples, shape, tests::test_device(), dist::single_mesh(), objective);
        recipe.mesh = mesh;
        const auto ranks = mesh_of(recipe);
        TinyRun many(recipe, samples, shape, tests::test_device(), ranks, objective);
        const std::vector<double> expected = train(one, 5), losses = train(many, 5);
        for (size_t i = 0; i < expected.size(); ++i)
          EXPECT_NEAR(losses[i], expected[i], 1e-5 * std::max(1.0, expected[i])) << "step " << i;
        expect_same_weights(one, many, 1e-3);
        const double alone = one.run.evaluate(*one.batches, 7).loss;
        EXPECT_NEAR(many.run.evaluate(*many.batches, 7).loss, alone, 1e-4 * std::max(1.0, alone));
        const std::vector<double> answers = one.run.log_probs(*one.batches, 7);
        const std::vector<double> of_all = many.run.log_probs(*many.batches, 7);
        ASSERT_EQ(of_all.size(), answers.size());
        for (size_t i = 0; i < answers.size(); ++i)
          EXPECT_NEAR(of_all[i], answers[i], 1e-3 * std::max(1.0, -answers[i])) << i;
        // A process without a pair of its own adds nothing.
        const auto last = [&](TinyRun& run) {
          const dist::Group& data = run.engine.mesh->data();
          const std::vector<int64_t> own =
              data.rank() == 0 ? std::vector<int64_t>{0} : std::vector<int64_t>{};
          return run.step({own}, kLearningRate);
        };
        const engine::StepResult few = last(one), shared = last(many);
        EXPECT_NEAR(shared.loss, few.loss, 1e-4 * std::max(1.0, few.loss));
        EXPECT_NEAR(shared.grad_norm, few.grad_norm, 1e-3 * few.grad_norm);
      }
}

// Half of each number is lost to its 16 bits: losses are near, for as long as weights are.
TEST(ContextParallelMixed, TrainsNearlyAsOneDoes) {
  const data::SampleStore samples = random_samples(8, 40, 5);
  recipe::Recipe recipe = tiny_recipe();
  recipe.precision = "bf16-mixed";
  recipe.train.micro_batch_size = 2;
  TinyRun one(recipe, samples, "llama");
  recipe.mesh = fmt::format("cp={}", test::world().size());
  TinyRun many(recipe, samples, "llama", tests::test_device(), mesh_of(recipe));
  const std::vector<double> expected = train(one, 5), losses = train(many, 5);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(losses[i], expected[i], 5e-3 * expected[i]) << i;
}

TEST(ContextParallelRefusals, EncodersAndPicturesSaySo) {
  for (const char* model : {"t5", "blip2-opt"}) {
    recipe::Recipe recipe = tiny_recipe();
    recipe.mesh = fmt::format("cp={}", test::world().size());
    const auto mesh = mesh_of(recipe);
    const auto twin = tests::tiny_model(model);
    try {
      engine::make_engine(*twin, recipe, at::kCPU, 128, mesh);
      ADD_FAILURE() << model << " was not refused";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("context parallelism works for decoder-only models"),
                std::string::npos)
          << error.what();
    }
  }
}

// One sample of many tokens: what a rank keeps for the backward falls with their number.
TEST(ContextParallelMemory, ActivationsOfALongSequenceAreShared) {
  data::SampleStore samples;
  data::Sample sample;
  for (int t = 0; t < 120; ++t) sample.ids.push_back(t % 96);
  sample.labels = sample.ids;
  for (int i = 0; i < 8; ++i) samples.append(sample);
  recipe::Recipe recipe = tiny_recipe();
  recipe.strategy = "ddp";
  recipe.train.micro_batch_size = 1;
  const auto activations = [&](TinyRun& run) {
    memory::Ledger& ledger = memory::cpu_ledger();
    int64_t after_forward = 0;
    run.engine.executor->on_forward_done([&] {
      after_forward = ledger.by_category()[static_cast<size_t>(memory::Category::Activations)];
    });
    run.step({{0}}, kLearningRate);
    return static_cast<double>(after_forward);
  };
  TinyRun one(recipe, samples);
  const double whole = activations(one);
  recipe.mesh = fmt::format("cp={}", test::world().size());
  TinyRun many(recipe, samples, "llama", tests::test_device(), mesh_of(recipe));
  EXPECT_NEAR(activations(many) * test::world().size(), whole, 0.02 * whole);
}

// What several processes refuse, or what is only refused with shards, is left out.
recipe::Recipe shared_recipe(std::mt19937& random, const std::string& shape) {
  constexpr const char* kStrategies[] = {"ddp", "zero1", "zero2", "fsdp"};
  recipe::Recipe recipe = tests::random_recipe(random);
  recipe.expert_streaming = false;
  recipe.strategy = kStrategies[random() % 4];
  recipe.delayed_parameter_update = false;
  if (recipe.optimizer.name == "adafactor") recipe.optimizer.name = "adamw";
  if (recipe.strategy != "fsdp") recipe.weight_streaming = false;
  recipe.overlap_reduction = random() % 2;
  // Adapters are chosen by the names that layers of the Llama type have.
  if (shape == "gpt2" || shape == "opt-plain") {
    recipe.lora = {};
    recipe.quantize.clear();
  }
  tests::fit_to_stacks(recipe.lora, shape);
  const bool is_pair = test::world().size() == 2;
  constexpr const char* kMeshes[] = {"cp=4", "fsdp=2,cp=2", "dp=2,cp=2", "pp=2,cp=2"};
  recipe.mesh = is_pair ? "cp=2" : kMeshes[random() % 4];
  if (recipe.mesh.starts_with("pp")) recipe.optimizer_in_backward = false;
  return recipe;
}

TEST(ContextParallelMemory, PlanIsTheMeasurementToTheByte) {
  constexpr const char* kShapes[] = {"llama", "mistral", "qwen2", "gpt2", "opt-plain", "gpt-oss"};
  std::mt19937 random(8);
  for (int trial = 0; trial < 60; ++trial) {
    const std::string shape = kShapes[random() % 6];
    const recipe::Recipe recipe = shared_recipe(random, shape);
    SCOPED_TRACE(fmt::format("trial {}: {} {}, {}", trial, recipe.strategy, recipe.mesh,
                             tests::describe(recipe, shape)));
    const data::SampleStore samples = random_samples(16, 60, random());
    const int64_t size = recipe.train.micro_batch_size;
    const auto mesh = mesh_of(recipe);
    const auto model = tests::tiny_model(shape);
    const plan::Prediction predicted = plan::predict(
        *model, recipe,
        plan::largest_micro_batch({.samples = samples, .reading = model->reads()}, recipe, size),
        128, {.mesh = dist::planned_mesh(mesh->shape(), mesh->rank())});
    memory::Ledger& ledger = memory::cpu_ledger();
    memory::Ledger& host = memory::cpu_host_ledger();
    const int64_t before = ledger.allocated(), host_before = host.allocated();
    // Documents in another order than that of the plan take as much.
    std::vector<int64_t> longest = samples.longest_samples(size);
    std::ranges::reverse(longest);
    ledger.reset_peak();
    host.reset_peak();
    {
      TinyRun run(recipe, samples, shape, at::kCPU, mesh);
      const auto count =
          static_cast<size_t>(plan::micro_batches_that_matter(recipe, mesh->shape()));
      run.step(engine::SampleIndices(count, longest), kLearningRate);
    }
    EXPECT_EQ(predicted.peak_allocated, ledger.at_peak().allocated - before);
    EXPECT_EQ(predicted.peak_host, host.at_peak().allocated - host_before);
    EXPECT_EQ(ledger.allocated(), before) << "bytes left behind";
    EXPECT_EQ(host.allocated(), host_before) << "bytes left on the host";
  }
}

// Saved by all ranks along cp, gone on with by half of them beside as many shards, saved, and gone
// on with by one.
TEST(ContextParallelResume, GoesOnOnAnyMesh) {
  dist::Group& ranks = test::row().world();
  std::unique_ptr<test::TempFolder> own;
  if (ranks.rank() == 0) own = std::make_unique<test::TempFolder>();
  const fs::path folder = ranks.broadcast_text(own ? own->path().string() : "", 0);
  const data::SampleStore samples = random_samples(8, 40, 5);
  recipe::Recipe recipe = tiny_recipe();
  recipe.train.micro_batch_size = 2;
  const auto make = [&](const std::string& mesh) {
    recipe::Recipe laid_out = recipe;
    laid_out.mesh = mesh;
    return std::make_unique<TinyRun>(laid_out, samples, "llama", tests::test_device(),
                                     mesh.empty() ? dist::single_mesh() : mesh_of(laid_out));
  };
  const auto save = [&](const TinyRun& run, int64_t step) {
    return checkpoint::save(folder, {.step = step}, run.engine.training_tensors(), "{}", &ranks);
  };
  const auto load = [&](const TinyRun& run, const fs::path& saved) {
    checkpoint::load_tensors(saved, run.engine.training_tensors(), &ranks);
    run.engine.optimizer->set_num_steps(checkpoint::load_state(saved).step);
    run.engine.weights_changed();
  };
  const auto straight = make("");
  train(*straight, 6);
  const auto first = make(fmt::format("cp={}", ranks.size()));
  train(*first, 2);
  const fs::path after_two = save(*first, 2);
  const auto second = make(ranks.size() == 4 ? "fsdp=2,cp=2" : "dp=2");
  load(*second, after_two);
  train(*second, 2);
  const fs::path after_four = save(*second, 4);
  const auto third = make("");
  load(*third, after_four);
  train(*third, 2);
  expect_same_weights(*straight, *third, 2e-5);
  // And back.
  const auto fourth = make(fmt::format("cp={}", ranks.size()));
  load(*fourth, after_four);
  train(*fourth, 2);
  expect_same_weights(*straight, *fourth, 2e-5);
  ranks.barrier();
}

}  // namespace
}  // namespace snug
