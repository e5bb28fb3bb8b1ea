// A run that is saved under one strategy and goes on under another has the losses, the weights and
// the states of one that was never stopped.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "engine/strategy.h"
#include "files/checkpoint/training_checkpoint.h"
#include "ranks_main.h"
#include "support/temp_folder.h"
#include "support/tiny_training.h"

namespace snug {
namespace {

namespace fs = std::filesystem;
using tests::random_samples;
using tests::TinyRun;

// "single": every rank has the whole model and all samples.
constexpr const char* kSingle = "single";
// All ranks are stages; half of them, each in two parts of stages with two stretches.
constexpr const char* kStages = "stages";
constexpr const char* kShardedStages = "sharded stages";
// Pairs share layers; of four ranks two pairs have half of the states each.
constexpr const char* kPairs = "pairs";
// Pairs have half of the experts each; of four ranks two pairs have half of all the rest.
constexpr const char* kExperts = "experts";
// Each has a part of the experts, and all of the rest.
constexpr const char* kExpertsAlone = "experts alone";

constexpr double kLearningRate = 1e-2, kSteps = 4;

void lay_out(recipe::Recipe& recipe, const std::string& strategy) {
  const int ranks = test::world().size();
  recipe.strategy = strategy;
  if (strategy == kPairs) {
    recipe.strategy = ranks == 4 ? "zero1" : "auto";
    recipe.mesh = ranks == 4 ? "fsdp=2,tp=2" : "tp=2";
  }
  if (strategy == kExperts) {
    recipe.strategy = ranks == 4 ? "zero2" : "auto";
    recipe.mesh = ranks == 4 ? "fsdp=2,ep=2" : "ep=2";
  }
  if (strategy == kExpertsAlone) {
    recipe.strategy = "auto";
    recipe.mesh = fmt::format("ep={}", ranks);
  }
  if (strategy != kStages && strategy != kShardedStages) return;
  recipe.strategy = "auto";
  recipe.mesh = fmt::format("pp={}", ranks);
  if (strategy == kStages) return;
  recipe.pipeline_interleave = 2;
  if (ranks == 4) recipe.mesh = "pp=2,fsdp=2";
}

std::unique_ptr<TinyRun> make_run(recipe::Recipe recipe, const data::SampleStore& samples,
                                  const std::string& strategy, const std::string& model) {
  auto mesh = dist::single_mesh();
  if (strategy != kSingle) {
    lay_out(recipe, strategy);
    mesh = test::world().make_mesh(engine::strategy_of(recipe, test::world().size(), 2).mesh,
                                   at::kCPU);
  }
  return std::make_unique<TinyRun>(recipe, samples, model, tests::test_device(), mesh);
}

// This rank's micro-batches of two.
void train(TinyRun& run, int steps) {
  const dist::Group& data = run.engine.mesh->data();
  const engine::SampleIndices all = tests::eight_in(2);
  const auto share = static_cast<std::ptrdiff_t>(all.size()) / data.size();
  for (int i = 0; i < steps; ++i)
    run.step({all.begin() + data.rank() * share, all.begin() + (data.rank() + 1) * share},
             kLearningRate);
}

fs::path save(const TinyRun& run, const fs::path& folder, int64_t step) {
  return checkpoint::save(folder, {.step = step}, run.engine.training_tensors(), "{}",
                          &test::row().world());
}

void load(const TinyRun& run, const fs::path& saved) {
  dist::Group& ranks = test::row().world();
  const checkpoint::TrainingTensors tensors = run.engine.training_tensors();
  checkpoint::load_tensors(saved, tensors, &ranks);
  run.engine.optimizer->set_num_steps(checkpoint::load_state(saved).step);
  run.engine.weights_changed();
  checkpoint::load_late_weights(saved, tensors, &ranks);
}

// The softmax hardly sees a bias that all keys share: its gradient is rounding, which Adam brings
// to the size of a step. Elsewhere relative to the largest number of each tensor.
double allowed(const std::string& name, const at::Tensor& wanted, double tolerance) {
  const double relative = tolerance * wanted.abs().max().item<double>();
  if (tolerance == 0) return 0;
  for (const char* ending : {"c_attn.bias", "key.bias", "qkv.bias"})
    if (name.ends_with(ending)) return kSteps * kLearningRate;
  return name.find("key.bias.") == std::string::npos ? relative : std::max(relative, 1e-8);
}

// Tolerance 0: the same bits.
void expect_same(const std::vector<optim::NamedTensor>& expected,
                 const std::vector<optim::NamedTensor>& actual, double tolerance) {
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor a = expected[i].tensor.to(at::kDouble), b = actual[i].tensor.to(at::kDouble);
    EXPECT_LE((a - b).abs().max().item<double>(), allowed(expected[i].name, a, tolerance))
        << expected[i].name;
  }
}

struct Case {
  const char* name;
  const char* before;
  const char* after;
  double tolerance;  // sums of other ranks' gradients are rounded otherwise
  void (*change)(recipe::Recipe&);
  const char* model = "llama";
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case kCases[] = {
    {"same_shards", "fsdp", "fsdp", 0, [](recipe::Recipe&) {}},
    {"same_replicas", "ddp", "ddp", 0, [](recipe::Recipe&) {}},
    {"shards_to_one", "fsdp", kSingle, 1e-5, [](recipe::Recipe&) {}},
    {"one_to_shards", kSingle, "fsdp", 1e-5, [](recipe::Recipe&) {}},
    {"replicas_to_shards", "ddp", "zero2", 1e-5, [](recipe::Recipe&) {}},
    {"states_to_hybrid", "zero1", "hybrid", 1e-5, [](recipe::Recipe&) {}},
    {"masters", "fsdp", "fsdp", 0,
     [](recipe::Recipe& r) {
       r.precision = "bf16-true";
       r.optimizer.master_weights = true;
     }},
    {"eight_bit", "zero2", "fsdp", 0, [](recipe::Recipe& r) { r.optimizer.name = "adamw_8bit"; }},
    {"offload", "fsdp", "zero2", 0, [](recipe::Recipe& r) { r.optimizer_offload = "cpu"; }},
    {"states_offload", "zero1", "zero1", 0, [](recipe::Recipe& r) { r.optimizer_offload = "cpu"; }},
    {"gradients", "zero2", "zero2", 0, [](recipe::Recipe&) {}},
    {"late_weights", "fsdp", "fsdp", 0,
     [](recipe::Recipe& r) {
       r.optimizer_offload = "cpu";
       r.delayed_parameter_update = true;
     }},
    {"same_stages", kStages, kStages, 0, [](recipe::Recipe&) {}, "llama3-rope"},
    {"stages_to_one", kStages, kSingle, 1e-5, [](recipe::Recipe&) {}, "llama3-rope"},
    {"shards_to_stages", "fsdp", kStages, 1e-5, [](recipe::Recipe&) {}, "llama3-rope"},
    {"stages_to_sharded_stages", kStages, kShardedStages, 1e-5, [](recipe::Recipe&) {},
     "llama3-rope"},
    {"sharded_stages_to_replicas", kShardedStages, "ddp", 1e-5, [](recipe::Recipe&) {}},
    {"same_pairs", kPairs, kPairs, 0, [](recipe::Recipe&) {}, "gpt2"},
    {"pairs_to_one", kPairs, kSingle, 1e-4, [](recipe::Recipe&) {}, "gpt2"},
    {"shards_to_pairs", "fsdp", kPairs, 1e-4, [](recipe::Recipe&) {}, "gpt2"},
    {"pairs_to_shards", kPairs, "fsdp", 1e-4, [](recipe::Recipe&) {}, "opt-plain"},
    {"pairs_with_encoder_to_one", kPairs, kSingle, 1e-4, [](recipe::Recipe&) {}, "t5"},
    {"same_experts", kExperts, kExperts, 0, [](recipe::Recipe&) {}, "olmoe"},
    {"experts_to_one", kExperts, kSingle, 1e-4, [](recipe::Recipe&) {}, "gpt-oss"},
    {"shards_to_experts", "fsdp", kExperts, 1e-4, [](recipe::Recipe&) {}, "olmoe"},
    {"experts_to_shards", kExperts, "fsdp", 1e-4,
     [](recipe::Recipe& r) { r.optimizer_offload = "cpu"; }, "mixtral"},
    // States of rows and columns, of weights that one rank has whole.
    {"experts_with_vectors_to_one", kExpertsAlone, kSingle, 1e-4,
     [](recipe::Recipe& r) { r.optimizer.name = "adafactor"; }, "olmoe"},
    {"shards_with_pictures_to_pairs", "fsdp", kPairs, 1e-4, [](recipe::Recipe&) {}, "blip2-t5"},
};

class Resume : public testing::TestWithParam<Case> {};

TEST_P(Resume, GoesOnAsIfNeverStopped) {
  const Case& c = GetParam();
  dist::Group& ranks = test::row().world();
  std::unique_ptr<test::TempFolder> own;
  if (ranks.rank() == 0) own = std::make_unique<test::TempFolder>();
  const fs::path folder = ranks.broadcast_text(own ? own->path().string() : "", 0);
  const data::SampleStore samples = random_samples(8, 40, 5, tests::tiny_model(c.model)->reads());
  recipe::Recipe recipe = tests::tiny_recipe();
  recipe.train.micro_batch_size = 2;
  c.change(recipe);
  const auto run = [&](const char* strategy) {
    return make_run(recipe, samples, strategy, c.model);
  };

  const auto straight = run(c.before);
  train(*straight, 2);
  const fs::path half = save(*straight, folder, 2);
  train(*straight, 2);
  const fs::path expected = save(*straight, folder / "straight", 4);
  const auto resumed = run(c.after);
  load(*resumed, half);
  train(*resumed, 2);
  const fs::path actual = save(*resumed, folder, 4);

  // Both as one process reads them.
  const auto a = run(kSingle), b = run(kSingle);
  load(*a, expected);
  load(*b, actual);
  const auto of_a = a->engine.training_tensors(), of_b = b->engine.training_tensors();
  expect_same(of_a.parameters, of_b.parameters, c.tolerance);
  expect_same(of_a.optimizer_states, of_b.optimizer_states, c.tolerance);
  expect_same(of_a.late_weights, of_b.late_weights, c.tolerance);
  ranks.barrier();
}

INSTANTIATE_TEST_SUITE_P(All, Resume, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace snug
