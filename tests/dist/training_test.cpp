// Many processes train as one does: every strategy, with every technique, over the same global
// batches, ends with the same losses and the same weights.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "config/mesh_text.h"
#include "exec/policies/sharding.h"
#include "ranks_main.h"
#include "setup/strategy.h"
#include "setup/tensor_parallel.h"
#include "support/tiny_training.h"

namespace snug {
namespace {

using tests::random_samples;
using tests::tiny_recipe;
using tests::TinyRun;

// The eight samples in micro-batches of `size`, this rank's share of them.
train::SampleIndices share_of_eight(int64_t size, int rank, int ranks) {
  train::SampleIndices all = tests::eight_in(size);
  const auto count = static_cast<std::ptrdiff_t>(all.size()) / ranks;
  return {all.begin() + rank * count, all.begin() + (rank + 1) * count};
}

std::vector<double> train(TinyRun& run, int steps) {
  const dist::Group& data = run.engine.mesh->data();
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i)
    losses.push_back(
        run.stepper
            ->step(share_of_eight(run.recipe.train.micro_batch_size, data.rank(), data.size()),
                   1e-2)
            .loss);
  return losses;
}

constexpr double kLearningRate = 1e-2, kSteps = 20;  // at most

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
      const at::Tensor b = setup::assemble(*parameter, parameter->value.detach()).to(at::kDouble);
      const bool is_key_bias = std::ranges::any_of(
          std::array{"k_proj.bias", "key.bias", "c_attn.bias", "qkv.bias"},
          [&](const char* ending) { return parameter->name.ends_with(ending); });
      EXPECT_LE((a - b).abs().max().item<double>(),
                is_key_bias ? kSteps * kLearningRate
                            : tolerance * std::max(1e-3, a.abs().max().item<double>()))
          << parameter->name;
    }
    if (many.engine.sharding != nullptr) many.engine.sharding->close(i);
  }
}

struct Technique {
  const char* name;
  void (*turn_on)(config::Recipe&);
};

constexpr Technique kTechniques[] = {
    {"plain", [](config::Recipe&) {}},
    {"clipping", [](config::Recipe& r) { r.train.max_norm = 0.5; }},
    {"checkpointing", [](config::Recipe& r) { r.activation_checkpointing = "all"; }},
    {"selective checkpointing, activation offload",
     [](config::Recipe& r) {
       r.activation_checkpointing = "selective";
       r.activation_offload = true;
       r.offload_prefetch = "true";
     }},
    {"no prefetch",
     [](config::Recipe& r) {
       r.forward_prefetch = r.backward_prefetch = r.overlap_reduction = false;
     }},
    {"in backward",
     [](config::Recipe& r) {
       r.optimizer_in_backward = true;
       r.train.max_norm = 0.5;
     }},
    {"optimizer offload",
     [](config::Recipe& r) {
       r.optimizer_offload = "cpu";
       r.offload_prefetch = "true";
     }},
    {"offload in backward",
     [](config::Recipe& r) {
       r.optimizer_offload = "cpu";
       r.optimizer_in_backward = true;
     }},
    {"sgd", [](config::Recipe& r) { r.optimizer = {.name = "sgd", .lr = 1e-2, .momentum = 0.9}; }},
    {"adamw 8 bit", [](config::Recipe& r) { r.optimizer.name = "adamw_8bit"; }},
    {"adapters",
     [](config::Recipe& r) {
       r.lora = {.enabled = true, .r = 4, .dropout = 0.1};
       r.lora.mlp = r.lora.head = true;
     }},
    {"adapters beside nf4",
     [](config::Recipe& r) {
       r.lora = {.enabled = true, .r = 4, .dropout = 0, .use_dora = true};
       r.quantize = "bnb.nf4";
     }},
};

struct Case {
  const char* strategy;
  const char* mesh;  // empty: the strategy's, of any number of ranks
  const char* model;
  const char* schedule = "1f1b";
  int64_t interleave = 1;

  bool has_pipeline() const { return std::string(mesh).find("pp=") != std::string::npos; }
  // The ranks are as many as the mesh lays out.
  bool fits_here() const {
    config::MeshSizes sizes;
    return *mesh == 0 ||
           (config::read_mesh(mesh, sizes).empty() && sizes.num_ranks() == test::world().size());
  }
  bool has_tensor_axis() const { return std::string(mesh).find("tp=") != std::string::npos; }
  // A tied head on another stage than the embedding would be updated before gradients are added up;
  // slices of these small layers hold no whole blocks of 4-bit codes. Slices of tensors that are
  // large enough for 8-bit states are cut into other blocks, which are rounded otherwise.
  bool leaves_out(const config::Recipe& recipe) const {
    return (has_pipeline() && recipe.optimizer_in_backward && has_tied_weights()) ||
           (has_tensor_axis() && !recipe.quantize.empty()) ||
           (has_tensor_axis() && recipe.optimizer.name == "adamw_8bit" && largest_tensor() >= 4096);
  }
  int64_t largest_tensor() const {
    int64_t largest = 0;
    for (const nn::Parameter* parameter : tests::tiny_model(model)->parameters())
      largest = std::max(largest, parameter->num_elements());
    return largest;
  }
  bool has_tied_weights() const {
    const auto whole = tests::tiny_model(model);
    const auto units = whole->units();
    return std::ranges::any_of(units, [](nn::Unit* unit) { return !unit->borrowed().empty(); });
  }
};

class ManyRanks : public ::testing::TestWithParam<Case> {};

void compare(const Case& c, const Technique& technique, int64_t micro_batch_size, int steps) {
  SCOPED_TRACE(std::string(c.strategy) + " " + c.mesh + " " + c.schedule + ", " + c.model + ", " +
               technique.name);
  const data::SampleStore samples =
      random_samples(8, 40, 5, setup::reading_of(*tests::tiny_model(c.model)));
  config::Recipe recipe = tiny_recipe();
  recipe.train.micro_batch_size = micro_batch_size;
  technique.turn_on(recipe);
  TinyRun one(recipe, samples, c.model);
  recipe.strategy = c.strategy;
  recipe.mesh = c.mesh;
  recipe.pipeline_schedule = c.schedule;
  recipe.pipeline_interleave = c.interleave;
  if (c.leaves_out(recipe)) return;
  const auto mesh =
      test::world().make_mesh(setup::strategy_of(recipe, test::world().size(), 2).mesh, at::kCPU);
  TinyRun many(recipe, samples, c.model, tests::test_device(), mesh);
  const std::vector<double> expected = train(one, steps);
  const std::vector<double> losses = train(many, steps);
  // Logits are rounded as they were when the loss was larger than what is left of it.
  for (int i = 0; i < steps; ++i)
    EXPECT_NEAR(losses[i], expected[i], 1e-6 * std::max(1.0, expected[i])) << "step " << i;
  // Along tp more sums are formed in another order.
  expect_same_weights(one, many, c.has_tensor_axis() ? 1e-4 : 2e-5);
}

TEST_P(ManyRanks, TrainAsOneDoes) {
  if (!GetParam().fits_here()) GTEST_SKIP() << "another number of ranks";
  for (const Technique& technique : kTechniques) compare(GetParam(), technique, 2, 5);
}

TEST_P(ManyRanks, TwentyStepsWithAccumulation) {
  if (!GetParam().fits_here()) GTEST_SKIP() << "another number of ranks";
  compare(GetParam(), kTechniques[0], 1, 20);
}

// So that what is rounded on the way and what is not shows in the loss.
void enlarge_tables_of_biases(TinyRun& run) {
  exec::Sharding* sharding = run.engine.sharding;
  for (size_t i = 0; i < run.engine.units.size(); ++i) {
    if (sharding != nullptr) sharding->open(i);
    for (nn::Parameter* parameter : run.engine.units[i]->parameters())
      if (parameter->exact) parameter->value.detach().mul_(20);
    if (sharding == nullptr) continue;
    for (const auto& flat : sharding->flats()[i]) flat->pieces_from_values();
    sharding->close(i);
  }
}

// Weights travel in the type that products read, which rounds them as one process does. Gradients
// are summed in another order, and weights that differ in their last bit may round to neighbours.
class MixedPrecision : public ::testing::TestWithParam<const char*> {};

TEST_P(MixedPrecision, GathersWhatItComputesWith) {
  const std::string shape = GetParam();
  const data::SampleStore samples =
      random_samples(8, 40, 5, setup::reading_of(*tests::tiny_model(shape)));
  config::Recipe recipe = tiny_recipe();
  recipe.precision = "bf16-mixed";
  recipe.train.micro_batch_size = 2;
  TinyRun one(recipe, samples, shape);
  recipe.strategy = "fsdp";
  const auto mesh =
      test::world().make_mesh(setup::strategy_of(recipe, test::world().size(), 2).mesh, at::kCPU);
  TinyRun many(recipe, samples, shape, tests::test_device(), mesh);
  if (shape == "t5")
    for (TinyRun* run : {&one, &many}) enlarge_tables_of_biases(*run);
  const auto& block = many.engine.sharding->flats()[1];
  EXPECT_TRUE(std::ranges::any_of(block, [](const auto& flat) {
    return flat->values().scalar_type() == at::kBFloat16 &&
           flat->part().scalar_type() == at::kFloat;
  }));
  const std::vector<double> expected = train(one, 5), losses = train(many, 5);
  EXPECT_NEAR(losses[0], expected[0], 1e-6 * expected[0]);
  for (int i = 1; i < 5; ++i) EXPECT_NEAR(losses[i], expected[i], 1e-3 * expected[i]) << i;
  if (shape == "llama") expect_same_weights(one, many, 5e-3);
}

INSTANTIATE_TEST_SUITE_P(Families, MixedPrecision, ::testing::Values("llama", "t5"));

INSTANTIATE_TEST_SUITE_P(Strategies, ManyRanks,
                         ::testing::Values(Case{"ddp", "", "llama"}, Case{"zero1", "", "llama"},
                                           Case{"zero2", "", "llama"}, Case{"fsdp", "", "llama"},
                                           Case{"hybrid", "", "llama"}, Case{"ddp", "", "qwen2"},
                                           Case{"zero1", "", "qwen2"}, Case{"zero2", "", "qwen2"},
                                           Case{"fsdp", "", "qwen2"}));

// More flows from stage to stage: what an encoder has read, pictures, tables of biases.
INSTANTIATE_TEST_SUITE_P(FamiliesInPipelines, ManyRanks,
                         ::testing::Values(Case{"auto", "pp=2", "gpt2"}, Case{"auto", "pp=2", "t5"},
                                           Case{"auto", "pp=2", "blip2-opt", "1f1b", 2},
                                           Case{"auto", "pp=4", "blip2-t5"},
                                           Case{"zero1", "pp=2,fsdp=2", "t5", "1f1b", 2}));

// What ranks share of a layer: tables of positions, q, k and v in one product. A head each is all
// that two ranks can have of this GPT-2.
INSTANTIATE_TEST_SUITE_P(FamiliesAlongTp, ManyRanks,
                         ::testing::Values(Case{"auto", "tp=2", "gpt2"},
                                           Case{"auto", "tp=2", "opt-plain"},
                                           Case{"auto", "tp=4", "opt-plain"},
                                           Case{"fsdp", "fsdp=2,tp=2", "gpt2"},
                                           Case{"zero1", "fsdp=2,tp=2", "opt-plain"},
                                           Case{"auto", "pp=2,tp=2", "gpt2"}));

INSTANTIATE_TEST_SUITE_P(
    Pipelines, ManyRanks,
    ::testing::Values(Case{"auto", "pp=2", "llama"}, Case{"auto", "pp=2", "qwen2"},
                      Case{"auto", "pp=2", "llama", "gpipe"},
                      Case{"auto", "pp=2", "qwen2", "1f1b", 2},
                      Case{"auto", "pp=2", "llama", "gpipe", 2}, Case{"auto", "pp=4", "llama"},
                      Case{"auto", "pp=4", "qwen2", "gpipe"}, Case{"ddp", "pp=2,dp=2", "qwen2"},
                      Case{"auto", "pp=2,tp=2", "llama-bias"},
                      Case{"zero1", "pp=2,fsdp=2", "qwen2", "1f1b", 2},
                      Case{"zero2", "pp=2,fsdp=2", "llama"}, Case{"fsdp", "pp=2,fsdp=2", "qwen2"},
                      Case{"fsdp", "pp=2,fsdp=2", "qwen2", "gpipe", 2}));

}  // namespace
}  // namespace snug
