// Models that look at pictures, on many processes: whatever is shared, they train as one does.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "distance.h"
#include "engine/exec/policies/sharding.h"
#include "engine/strategy.h"
#include "ranks_main.h"
#include "recipe/mesh.h"
#include "support/tiny_training.h"
#include "support/wide_blip2.h"

namespace snug {
namespace pictures_test {

using tests::TinyRun;

struct Technique {
  const char* name;
  void (*turn_on)(recipe::Recipe&);
};

constexpr Technique kTechniques[] = {
    {"plain", [](recipe::Recipe&) {}},
    {"what is between",
     [](recipe::Recipe& r) {
       r.model.train_parts = "qformer,projection";
       r.activation_checkpointing = "all";
     }},
    {"offloaded",
     [](recipe::Recipe& r) {
       r.activation_checkpointing = "selective";
       r.activation_offload = true;
       r.optimizer_offload = "cpu";
       r.offload_prefetch = "true";
     }},
    {"adapters beside nf4",
     [](recipe::Recipe& r) {
       r.lora = {.enabled = true, .r = 4, .mlp = true};
       r.quantize = "bnb.nf4";
     }},
    {"adapters beside a whole Q-Former",
     [](recipe::Recipe& r) {
       r.lora = {.enabled = true, .r = 4};
       r.model.train_parts = "qformer,projection";
       r.quantize = "bnb.nf4";
     }},
    {"adapters beside a whole vision model",
     [](recipe::Recipe& r) {
       r.lora = {.enabled = true, .r = 4, .mlp = true};
       r.model.train_parts = "vision";
       r.activation_checkpointing = "all";
     }},
};

std::vector<double> train(TinyRun& run, int steps) {
  const dist::Group& data = run.engine.mesh->data();
  const engine::SampleIndices all = tests::eight_in(run.recipe.train.micro_batch_size);
  const auto share = std::ssize(all) / data.size();
  const engine::SampleIndices own(all.begin() + data.rank() * share,
                                  all.begin() + (data.rank() + 1) * share);
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) losses.push_back(run.step(own, 1e-2).loss);
  return losses;
}

// How the ranks share the work.
struct Shared {
  const char* strategy;
  const char* mesh = "";  // empty: the strategy's, of any number of ranks
  int64_t interleave = 1;

  bool fits_here() const {
    recipe::MeshShape shape;
    return *mesh == 0 ||
           (recipe::read_mesh(mesh, shape).empty() && shape.num_ranks() == test::world().size());
  }
};

// A stage of a pipeline has some of the units; frozen weights in 4 bits never change.
void expect_same_weights(const TinyRun& one, TinyRun& many) {
  std::map<std::string, at::Tensor> wanted;
  for (nn::Unit* unit : one.engine.units)
    for (const nn::Parameter* parameter : unit->parameters())
      if (!parameter->quantization) wanted[parameter->name] = parameter->value.detach();
  size_t compared = 0;
  for (size_t i = 0; i < many.engine.units.size(); ++i) {
    if (many.engine.sharding != nullptr) many.engine.sharding->open(i);
    for (const nn::Parameter* parameter : many.engine.units[i]->parameters()) {
      if (parameter->quantization) continue;
      const at::Tensor a = wanted.at(parameter->name), b = parameter->value.detach();
      EXPECT_LE((a - b).abs().max().item<double>(), 1e-4 * a.abs().max().item<double>() + 1e-6)
          << parameter->name;
      ++compared;
    }
    if (many.engine.sharding != nullptr) many.engine.sharding->close(i);
  }
  EXPECT_GT(compared, 0U);
}

void compare(const char* shape, const Shared& shared, const Technique& technique) {
  SCOPED_TRACE(std::string(shape) + ", " + shared.strategy + " " + shared.mesh + ", " +
               technique.name);
  const data::SampleStore samples =
      tests::random_samples(8, 12, 5, tests::tiny_model(shape)->reads());
  recipe::Recipe recipe = tests::tiny_recipe();
  // Small differences would be brought to the size of a step by Adam.
  recipe.optimizer = {.name = "sgd", .lr = 1e-2, .momentum = 0.9};
  recipe.train.micro_batch_size = 2;
  technique.turn_on(recipe);
  TinyRun one(recipe, samples, shape);
  recipe.strategy = shared.strategy;
  recipe.mesh = shared.mesh;
  recipe.pipeline_interleave = shared.interleave;
  const auto mesh =
      test::world().make_mesh(engine::strategy_of(recipe, test::world().size(), 2).mesh, at::kCPU);
  TinyRun many(recipe, samples, shape, tests::test_device(), mesh);
  const std::vector<double> expected = train(one, 4), losses = train(many, 4);
  EXPECT_NE(expected.back(), expected.front());
  for (size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(losses[i], expected[i], 1e-5 * expected[i]) << "step " << i;
  expect_same_weights(one, many);
}

TEST(Pictures, ManyRanksTrainAsOneDoes) {
  for (const char* shape : {"blip2-opt", "blip2-t5"})
    for (const char* strategy : {"ddp", "zero2", "fsdp"})
      for (const Technique& technique : kTechniques) compare(shape, {strategy}, technique);
}

// What trains whole and the adapters may lie on different stages, or on none of a stage's units.
TEST(Pictures, StagesTrainAsOneDoes) {
  int compared = 0;
  for (const Shared& shared :
       {Shared{"auto", "pp=2"}, Shared{"auto", "pp=2", 2}, Shared{"auto", "pp=4"},
        Shared{"zero1", "pp=2,fsdp=2"}, Shared{"fsdp", "pp=2,fsdp=2", 2}})
    for (const char* shape : {"blip2-opt", "blip2-t5"})
      for (const Technique& technique : kTechniques) {
        if (!shared.fits_here()) continue;
        compare(shape, shared, technique);
        ++compared;
      }
  if (compared == 0) GTEST_SKIP() << "another number of ranks";
}

// Steps of one process and of many, with micro-batches of so many samples.
tests::Distance distance_in_8_bits(const std::string& shape, const Shared& shared, int64_t size,
                                   int steps) {
  const data::SampleStore samples =
      tests::random_samples(8, 12, 5, tests::tiny_model(shape)->reads());
  recipe::Recipe recipe = tests::tiny_recipe();
  recipe.optimizer = {.name = "adamw_8bit", .lr = 1e-3, .weight_decay = 0.01};
  recipe.train.micro_batch_size = size;
  TinyRun one(recipe, samples, shape);
  recipe.strategy = shared.strategy;
  recipe.mesh = shared.mesh;
  const auto mesh =
      test::world().make_mesh(engine::strategy_of(recipe, test::world().size(), 2).mesh, at::kCPU);
  TinyRun many(recipe, samples, shape, tests::test_device(), mesh);
  EXPECT_GT(count_8bit_states(one), 0);
  EXPECT_GT(count_8bit_states(many), 0);
  const std::vector<double> expected = train(one, steps), losses = train(many, steps);
  tests::Distance result = tests::distance(one, many);
  add_losses(result, expected, losses);
  return result;
}

// With one micro-batch each, ranks form every sum as one process does, and none of them has a part
// of a block of codes: the same bits. Only the gradients of T5's words, the encoder's and the
// decoder's, are added up in another order: one process adds a micro-batch's two to the sum one by
// one, ranks add each their own first. So the first step gives other bits to the words alone; with
// them everything differs, and a moment may be rounded to the neighbouring code, which is another
// step of that weight.
TEST(Pictures, StatesIn8BitsAreThoseOfOneProcess) {
  for (const std::string tiny : {"blip2-opt", "blip2-t5"}) {
    const tests::WideBlip2 wide(tiny);
    for (const Shared& shared : {Shared{"ddp"}, Shared{"fsdp"}, Shared{"auto", "pp=2"}})
      for (const int64_t size : {8 / test::world().size(), 1}) {
        if (!shared.fits_here()) continue;
        const std::string what =
            fmt::format("{}, {} {}, micro-batch {}", tiny, shared.strategy, shared.mesh, size);
        SCOPED_TRACE(what);
        const tests::Distance d = distance_in_8_bits(wide.shape(), shared, size, 4);
        show(what, d);
        EXPECT_LE(d.loss, 1e-5);
        EXPECT_LE(d.whole, 1e-4);
        if (size == 1) continue;
        if (tiny == "blip2-opt") {
          EXPECT_TRUE(d.same_bits);
          continue;
        }
        std::set<std::string> different =
            distance_in_8_bits(wide.shape(), shared, size, 1).different;
        different.erase("language_model.shared.weight");
        EXPECT_TRUE(different.empty()) << fmt::format("{}", fmt::join(different, ", "));
      }
  }
}

}  // namespace pictures_test
}  // namespace snug
