// Models that look at pictures, on many processes: whatever is shared, they train as one does.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "exec/policies/sharding.h"
#include "ranks_main.h"
#include "setup/strategy.h"
#include "support/tiny_training.h"

namespace snug {
namespace {

using tests::TinyRun;

struct Technique {
  const char* name;
  void (*turn_on)(config::Recipe&);
};

constexpr Technique kTechniques[] = {
    {"plain", [](config::Recipe&) {}},
    {"what is between",
     [](config::Recipe& r) {
       r.model.train_parts = "qformer,projection";
       r.activation_checkpointing = "all";
     }},
    {"offloaded",
     [](config::Recipe& r) {
       r.activation_checkpointing = "selective";
       r.activation_offload = true;
       r.optimizer_offload = "cpu";
       r.offload_prefetch = "true";
     }},
    {"adapters beside nf4",
     [](config::Recipe& r) {
       r.lora = {.enabled = true, .r = 4, .mlp = true};
       r.quantize = "bnb.nf4";
     }},
    {"adapters beside a whole Q-Former",
     [](config::Recipe& r) {
       r.lora = {.enabled = true, .r = 4};
       r.model.train_parts = "qformer,projection";
       r.quantize = "bnb.nf4";
     }},
};

std::vector<double> train(TinyRun& run, int steps) {
  const dist::Group& data = run.engine.mesh->data();
  const train::SampleIndices all = tests::eight_in(2);
  const auto share = std::ssize(all) / data.size();
  const train::SampleIndices own(all.begin() + data.rank() * share,
                                 all.begin() + (data.rank() + 1) * share);
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) losses.push_back(run.stepper->step(own, 1e-2).loss);
  return losses;
}

void compare(const char* shape, const char* strategy, const Technique& technique) {
  SCOPED_TRACE(std::string(shape) + ", " + strategy + ", " + technique.name);
  const data::SampleStore samples =
      tests::random_samples(8, 12, 5, setup::reading_of(*tests::tiny_model(shape)));
  config::Recipe recipe = tests::tiny_recipe();
  // Small differences would be brought to the size of a step by Adam.
  recipe.optimizer = {.name = "sgd", .lr = 1e-2, .momentum = 0.9};
  recipe.train.micro_batch_size = 2;
  technique.turn_on(recipe);
  TinyRun one(recipe, samples, shape);
  recipe.strategy = strategy;
  const auto mesh =
      test::world().make_mesh(setup::strategy_of(recipe, test::world().size(), 2).mesh, at::kCPU);
  TinyRun many(recipe, samples, shape, tests::test_device(), mesh);
  const std::vector<double> expected = train(one, 4), losses = train(many, 4);
  for (size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(losses[i], expected[i], 1e-5 * expected[i]) << "step " << i;
  for (size_t i = 0; i < one.engine.units.size(); ++i) {
    if (many.engine.sharding != nullptr) many.engine.sharding->open(i);
    const auto wanted = one.engine.units[i]->parameters(),
               found = many.engine.units[i]->parameters();
    for (size_t p = 0; p < wanted.size(); ++p) {
      if (wanted[p]->quantization) continue;
      const at::Tensor a = wanted[p]->value.detach(), b = found[p]->value.detach();
      EXPECT_LE((a - b).abs().max().item<double>(), 1e-4 * a.abs().max().item<double>() + 1e-6)
          << wanted[p]->name;
    }
    if (many.engine.sharding != nullptr) many.engine.sharding->close(i);
  }
}

TEST(Pictures, ManyRanksTrainAsOneDoes) {
  for (const char* shape : {"blip2-opt", "blip2-t5"})
    for (const char* strategy : {"ddp", "zero2", "fsdp"})
      for (const Technique& technique : kTechniques) compare(shape, strategy, technique);
}

}  // namespace
}  // namespace snug
