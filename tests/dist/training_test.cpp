// Many processes train as one does: every strategy, with every technique, over the same global
// batches, ends with the same losses and the same weights.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

#include "distance.h"
#include "engine/exec/policies/sharding.h"
#include "engine/parallel/tensor_parallel.h"
#include "engine/strategy.h"
#include "ranks_main.h"
#include "recipe/mesh.h"
#include "support/tiny_training.h"
#include "use/generate/next_logits.h"

namespace snug {
namespace {

using tests::Distance;
using tests::random_samples;
using tests::tiny_recipe;
using tests::TinyRun;

// The eight samples in micro-batches of `size`, this rank's share of them.
engine::SampleIndices share_of_eight(int64_t size, int rank, int ranks) {
  engine::SampleIndices all = tests::eight_in(size);
  const auto count = static_cast<std::ptrdiff_t>(all.size()) / ranks;
  return {all.begin() + rank * count, all.begin() + (rank + 1) * count};
}

std::vector<double> train(TinyRun& run, int steps) {
  const dist::Group& data = run.engine.mesh->data();
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i)
    losses.push_back(
        run.step(share_of_eight(run.recipe.train.micro_batch_size, data.rank(), data.size()),
                 run.recipe.optimizer.lr)
            .loss);
  return losses;
}

struct Technique {
  const char* name;
  void (*turn_on)(recipe::Recipe&);
};

constexpr Technique kTechniques[] = {
    {"plain", [](recipe::Recipe&) {}},
    // Adam hardly sees a gradient's scale.
    {"clipping",
     [](recipe::Recipe& r) {
       r.train.max_norm = 0.5;
       r.optimizer = {.name = "sgd", .lr = 1e-2, .momentum = 0.9};
     }},
    {"checkpointing", [](recipe::Recipe& r) { r.activation_checkpointing = "all"; }},
    {"selective checkpointing, activation offload",
     [](recipe::Recipe& r) {
       r.activation_checkpointing = "selective";
       r.activation_offload = true;
       r.offload_prefetch = "true";
     }},
    {"no prefetch",
     [](recipe::Recipe& r) {
       r.forward_prefetch = r.backward_prefetch = r.overlap_reduction = false;
     }},
    {"in backward",
     [](recipe::Recipe& r) {
       r.optimizer_in_backward = true;
       r.train.max_norm = 0.5;
     }},
    {"optimizer offload",
     [](recipe::Recipe& r) {
       r.optimizer_offload = "cpu";
       r.offload_prefetch = "true";
     }},
    {"offload in backward",
     [](recipe::Recipe& r) {
       r.optimizer_offload = "cpu";
       r.optimizer_in_backward = true;
     }},
    {"sgd", [](recipe::Recipe& r) { r.optimizer = {.name = "sgd", .lr = 1e-2, .momentum = 0.9}; }},
    {"adamw 8 bit", [](recipe::Recipe& r) { r.optimizer.name = "adamw_8bit"; }},
    {"adapters",
     [](recipe::Recipe& r) {
       r.lora = {.enabled = true, .r = 4, .dropout = 0.1};
       r.lora.mlp = r.lora.head = true;
     }},
    {"an adapter of one expert",
     [](recipe::Recipe& r) {
       r.lora = {.enabled = true, .r = 4, .dropout = 0, .target_modules = "experts.0.w1"};
     }},
    {"adapters whose B learns faster",
     [](recipe::Recipe& r) {
       r.lora = {.enabled = true, .r = 4, .dropout = 0, .plus_lr_ratio = 8};
     }},
    {"adapters beside nf4",
     [](recipe::Recipe& r) {
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

  std::string name() const {
    const std::string stretches = interleave > 1 ? fmt::format(" x {}", interleave) : "";
    return fmt::format("{} {}{}{}", model, *mesh == 0 ? strategy : mesh,
                       has_pipeline() ? fmt::format(" {}", schedule) : "", stretches);
  }
  bool has_pipeline() const { return std::string(mesh).find("pp=") != std::string::npos; }
  // The ranks are as many as the mesh lays out.
  bool fits_here() const {
    recipe::MeshShape shape;
    return *mesh == 0 ||
           (recipe::read_mesh(mesh, shape).empty() && shape.num_ranks() == test::world().size());
  }
  bool has_tensor_axis() const { return std::string(mesh).find("tp=") != std::string::npos; }
  bool has_expert_axis() const { return std::string(mesh).find("ep=") != std::string::npos; }
  // A tied head on another stage than the embedding would be updated before gradients are added up;
  // slices of these small layers hold no whole blocks of 4-bit codes. Slices of tensors that are
  // large enough for 8-bit states are cut into other blocks, which are rounded otherwise. The names
  // of experts are those of one family.
  bool leaves_out(const recipe::Recipe& recipe) const {
    return (has_pipeline() && recipe.optimizer_in_backward && has_tied_weights()) ||
           (has_tensor_axis() && !recipe.quantize.empty()) ||
           (!recipe.lora.target_modules.empty() && std::string(model) != "mixtral") ||
           (has_tensor_axis() && recipe.optimizer.name == "adamw_8bit" && largest_tensor() >= 4096);
  }
  // Ranks that see samples of their own.
  int64_t data_ranks() const {
    recipe::MeshShape shape;
    recipe::read_mesh(mesh, shape);
    return *mesh == 0 ? test::world().size() : shape.num_data_ranks();
  }
  // Whether every sum is formed as one process forms it: a stage adds micro-batches up in their
  // order, and so do ranks with one micro-batch each. A tied weight's two gradients are added to
  // one sum in one process.
  bool keeps_the_order(int64_t micro_batch_size) const {
    const bool one_each = data_ranks() * micro_batch_size == 8;
    const bool sums_pairs = std::string(strategy) == "hybrid" && data_ranks() > 2;
    return !has_tensor_axis() && !has_expert_axis() && !has_tied_weights() &&
           (data_ranks() == 1 || (one_each && !sums_pairs));
  }
  int64_t largest_tensor() const {
    const auto whole = tests::tiny_model(model);
    int64_t largest = 0;
    for (const nn::Parameter* parameter : whole->parameters())
      largest = std::max(largest, parameter->num_elements());
    return largest;
  }
  bool has_experts() const {
    const auto whole = tests::tiny_model(model);
    return std::ranges::any_of(whole->parameters(), [](const nn::Parameter* parameter) {
      return parameter->name.find(".experts.") != std::string::npos;
    });
  }
  bool has_tied_weights() const {
    const auto whole = tests::tiny_model(model);
    const auto units = whole->units();
    return std::ranges::any_of(units, [](nn::Unit* unit) { return !unit->borrowed().empty(); });
  }
};

class ManyRanks : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }
};

// One process and many, after so many steps with the same samples.
std::optional<Distance> distance_of(const Case& c, const recipe::Recipe& plain, int steps) {
  const data::SampleStore samples = random_samples(8, 40, 5, tests::tiny_model(c.model)->reads());
  recipe::Recipe recipe = plain;
  recipe.strategy = c.strategy;
  recipe.mesh = c.mesh;
  recipe.pipeline_schedule = c.schedule;
  recipe.pipeline_interleave = c.interleave;
  if (c.leaves_out(recipe)) return std::nullopt;
  const auto mesh = test::world().make_mesh(
      engine::strategy_of(recipe, test::world().size(), 2).mesh, tests::test_device());
  TinyRun one(plain, samples, c.model);
  TinyRun many(recipe, samples, c.model, tests::test_device(), mesh);
  const std::vector<double> expected = train(one, steps), losses = train(many, steps);
  Distance result = tests::distance(one, many);
  add_losses(result, expected, losses);
  return result;
}

// AdamW with the learning rate that is the default, and SGD.
recipe::Recipe recipe_of(const std::string& optimizer) {
  recipe::Recipe recipe = tiny_recipe();
  recipe.optimizer = {.name = optimizer, .lr = 1e-3, .weight_decay = 0.01};
  if (optimizer == "sgd") recipe.optimizer = {.name = optimizer, .lr = 1e-2, .momentum = 0.9};
  return recipe;
}

TEST_P(ManyRanks, TrainAsOneDoes) {
  const Case& c = GetParam();
  if (!c.fits_here()) GTEST_SKIP() << "another number of ranks";
  for (const Technique& technique : kTechniques) {
    SCOPED_TRACE(technique.name);
    recipe::Recipe recipe = recipe_of("adamw");
    recipe.train.micro_batch_size = 2;
    technique.turn_on(recipe);
    if (c.has_expert_axis()) recipe.lora.dropout = 0;  // an expert's masks follow its rank's tokens
    const std::optional<Distance> d = distance_of(c, recipe, 5);
    if (!d) continue;
    show(c.name() + ", " + technique.name, *d);
    EXPECT_LE(d->loss, 1e-6);
    const bool is_adamw =
        std::string(recipe::word_of(recipe.optimizer.name.value())).starts_with("adamw");
    EXPECT_LE(d->whole, c.has_expert_axis() && is_adamw ? 3e-6 : 1e-6);
    // Along tp and ep more sums are formed in another order; and with a tied weight's two gradients
    // added in another order (keeps_the_order) a state in 8 bits may be rounded to the neighbouring
    // code. An adapter of an expert with few tokens has small gradients, whose roundings Adam
    // enlarges.
    const bool coarse = c.has_tensor_axis() || c.has_expert_axis() ||
                        (recipe.optimizer.name == "adamw_8bit" && c.has_tied_weights()) ||
                        (recipe.lora.enabled && c.has_experts());
    EXPECT_LE(d->element, coarse ? 1e-4 : 2e-5) << d->worst;
    EXPECT_LE(d->grown, coarse ? 1e-3 : 5e-4);
    EXPECT_LE(d->unseen, 5 * recipe.optimizer.lr * 1.01);
  }
}

// The families of decoders beside those below: two stages, a micro-batch under way in each.
class EachFamily : public ::testing::TestWithParam<const char*> {};

TEST_P(EachFamily, TrainsInAPipelineAsInOneProcess) {
  const Case c{.strategy = "auto", .mesh = "pp=2", .model = GetParam()};
  if (!c.fits_here()) GTEST_SKIP() << "another number of ranks";
  recipe::Recipe recipe = recipe_of("adamw");
  recipe.train.micro_batch_size = 2;
  const Distance d = distance_of(c, recipe, 5).value();
  show(c.name(), d);
  EXPECT_LE(d.loss, 1e-6);
  EXPECT_LE(d.whole, 1e-6);
  EXPECT_LE(d.element, 2e-5) << d.worst;
  if (c.keeps_the_order(2)) {
    EXPECT_TRUE(d.same_bits);
  }
}

// Each stage has a cache of its own; layers may attend to keys of a layer on another stage.
TEST_P(EachFamily, GeneratesInAPipelineAsInOneProcess) {
  const Case c{.strategy = "auto", .mesh = "pp=2", .model = GetParam()};
  if (!c.fits_here()) GTEST_SKIP() << "another number of ranks";
  recipe::Recipe recipe = recipe_of("adamw");
  const data::SampleStore samples = random_samples(8, 40, 5);
  TinyRun one(recipe, samples, c.model);
  recipe.mesh = c.mesh;
  const auto mesh = test::world().make_mesh(
      engine::strategy_of(recipe, test::world().size(), 2).mesh, tests::test_device());
  TinyRun many(recipe, samples, c.model, tests::test_device(), mesh);
  use::ModelLogits expected(*one.engine.executor, *one.model, at::kFloat);
  use::ModelLogits found(*many.engine.executor, *many.model, at::kFloat);
  const std::vector<use::Prompt> prompts = {{.ids = {5, 31, 62, 3, 8, 9, 12, 77}}};
  at::Tensor a = expected.start(prompts, 3), b = found.start(prompts, 3);
  for (const int32_t id : {4, 50, 9}) {
    const std::vector<int32_t> ids{id};
    EXPECT_LE((a - b).abs().max().item<double>(), 1e-5 * (1 + a.abs().max().item<double>()));
    a = expected.next(ids);
    b = found.next(ids);
  }
}

INSTANTIATE_TEST_SUITE_P(Decoders, EachFamily,
                         ::testing::Values("ministral", "ministral3", "qwen3", "granite",
                                           "granite-hybrid", "olmo2", "olmo3", "exaone4", "phi3",
                                           "gemma", "gemma2", "gemma4", "gemma4-shared",
                                           "gemma4-moe", "glm4", "ernie4-5", "helium", "seed-oss",
                                           "lfm2-bias", "arcee", "qwen3-5", "qwen3-next",
                                           "lfm2-moe", "deepseek-v3", "smollm3", "starcoder2",
                                           "stablelm", "falcon", "falcon-grouped", "opt",
                                           "opt-after", "olmoe", "mixtral", "gpt-oss"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

// What float32 leaves open where sums are formed in another order: docs/guide/many-devices.md. A
// bias may have a gradient that is a small difference of large numbers, and Adam divides it by its
// size; along tp and ep, where more sums are cut, that happens to single weights as well. Below the
// many layers of a model that looks at pictures more is left open, in one process too: Floor.
void expect_equal_within_rounding(const Distance& d, const recipe::OptimizerOptions& optimizer,
                                  bool cuts_sums, const std::string& model) {
  const bool is_adam = optimizer.name == "adamw", is_deep = model.starts_with("blip2");
  const bool may_stand_out = cuts_sums && (is_adam || is_deep);
  const bool stands_out = is_adam && is_deep;
  // Its gates are clamped: a rounding decides whether one at the limit has a gradient, which shows
  // in all later steps. A Gemma 4's scores of attention are not divided by anything.
  const double more = model == "gpt-oss" ? 20 : model.starts_with("gemma4") ? 3 : 1;
  EXPECT_LE(d.loss, more * (is_deep ? 1e-6 : 3e-7));
  EXPECT_LE(d.whole, more * (stands_out ? 2e-6 : 3e-7));
  EXPECT_LE(d.tensor, more * (stands_out                 ? 2e-5
                              : may_stand_out || is_deep ? 3e-6
                                                         : 1e-6))
      << d.worst;
  EXPECT_LE(d.element, more * (stands_out ? 2e-4 : may_stand_out ? 5e-5 : 5e-6));
  EXPECT_LE(d.grown, more > 1 ? 5e-3 : is_adam ? 5e-4 : is_deep ? 5e-5 : 1e-5);
  EXPECT_LE(d.unseen, 20 * optimizer.lr * 1.01);
}

TEST_P(ManyRanks, TwentyStepsEndWithTheSameWeights) {
  const Case& c = GetParam();
  if (!c.fits_here()) GTEST_SKIP() << "another number of ranks";
  for (const char* optimizer : {"adamw", "sgd"})
    for (const bool accumulates : {true, false}) {
      recipe::Recipe recipe = recipe_of(optimizer);
      if (!accumulates && recipe.optimizer.name == "sgd") continue;
      // Each data rank has one micro-batch without accumulation, if there are several ranks.
      const int64_t most = c.data_ranks() == 1 ? 2 : 8 / c.data_ranks();
      recipe.train.micro_batch_size = accumulates ? 1 : most;
      const std::string what =
          fmt::format("{}, {}, micro-batch {}", c.name(), optimizer, recipe.train.micro_batch_size);
      SCOPED_TRACE(what);
      const Distance d = distance_of(c, recipe, 20).value();
      show(what, d);
      expect_equal_within_rounding(d, recipe.optimizer, c.has_tensor_axis() || c.has_expert_axis(),
                                   c.model);
      if (c.keeps_the_order(recipe.train.micro_batch_size)) {
        EXPECT_TRUE(d.same_bits);
      }
    }
}

// One process with micro-batches of another size adds the same up in another order: no two runs can
// be asked to be nearer than these.
TEST(Floor, IsWhatOneProcessLeavesOpen) {
  for (const char* model : {"llama", "qwen2", "blip2-t5"})
    for (const char* optimizer : {"adamw", "sgd"}) {
      const data::SampleStore samples = random_samples(8, 40, 5, tests::tiny_model(model)->reads());
      recipe::Recipe recipe = recipe_of(optimizer);
      recipe.train.micro_batch_size = 1;
      TinyRun one(recipe, samples, model);
      one.model->set_dropout(0);  // which numbers a micro-batch's tokens
      const std::vector<double> expected = train(one, 20);
      for (const int64_t size : {2, 4, 8}) {
        recipe.train.micro_batch_size = size;
        TinyRun other(recipe, samples, model);
        other.model->set_dropout(0);
        const std::vector<double> losses = train(other, 20);
        Distance d = tests::distance(one, other);
        add_losses(d, expected, losses);
        show(fmt::format("one process, {}, {}, micro-batch {} for 1", model, optimizer, size), d);
        EXPECT_FALSE(d.same_bits);
        expect_equal_within_rounding(d, recipe.optimizer, false, model);
      }
    }
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
  const data::SampleStore samples = random_samples(8, 40, 5, tests::tiny_model(shape)->reads());
  recipe::Recipe recipe = tiny_recipe();
  recipe.precision = "bf16-mixed";
  recipe.train.micro_batch_size = 2;
  TinyRun one(recipe, samples, shape);
  recipe.strategy = "fsdp";
  const auto mesh =
      test::world().make_mesh(engine::strategy_of(recipe, test::world().size(), 2).mesh, at::kCPU);
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
  if (shape == "llama") {
    EXPECT_LE(tests::distance(one, many).element, 5e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, MixedPrecision, ::testing::Values("llama", "t5"));

INSTANTIATE_TEST_SUITE_P(Strategies, ManyRanks,
                         ::testing::Values(Case{"ddp", "", "llama"}, Case{"zero1", "", "llama"},
                                           Case{"zero2", "", "llama"}, Case{"fsdp", "", "llama"},
                                           Case{"hybrid", "", "llama"}, Case{"ddp", "", "qwen2"},
                                           Case{"zero1", "", "qwen2"}, Case{"zero2", "", "qwen2"},
                                           Case{"fsdp", "", "qwen2"},
                                           Case{"fsdp", "fsdp=2", "gemma3"},
                                           Case{"ddp", "dp=2", "olmoe-balanced"},
                                           Case{"fsdp", "fsdp=2", "olmoe"},
                                           Case{"fsdp", "fsdp=2", "mixtral-balanced"},
                                           Case{"fsdp", "fsdp=2", "gpt-oss"}));

// Tokens travel to the ranks that have their experts.
INSTANTIATE_TEST_SUITE_P(
    Experts, ManyRanks,
    ::testing::Values(Case{"auto", "ep=2", "olmoe-balanced"}, Case{"auto", "ep=2", "mixtral"},
                      Case{"auto", "ep=2", "gpt-oss"}, Case{"auto", "ep=2", "gemma4-moe"},
                      Case{"auto", "ep=4", "olmoe"}, Case{"auto", "dp=2,ep=2", "mixtral"},
                      Case{"zero1", "fsdp=2,ep=2", "olmoe"},
                      Case{"zero2", "fsdp=2,ep=2", "mixtral"},
                      Case{"fsdp", "fsdp=2,ep=2", "gpt-oss-balanced"},
                      Case{"auto", "pp=2,ep=2", "qwen3-moe-balanced"}));

// Units of many kinds and sizes, and words that T5's encoder and decoder share.
INSTANTIATE_TEST_SUITE_P(
    Pictures, ManyRanks,
    ::testing::Values(Case{"ddp", "dp=2", "blip2-opt"}, Case{"ddp", "dp=2", "blip2-t5"},
                      Case{"fsdp", "fsdp=2", "blip2-opt"}, Case{"fsdp", "", "blip2-t5"},
                      Case{"ddp", "dp=2", "idefics3"}, Case{"fsdp", "fsdp=2", "smolvlm"}));

// More flows from stage to stage: what an encoder has read, pictures, tables of biases.
INSTANTIATE_TEST_SUITE_P(
    FamiliesInPipelines, ManyRanks,
    ::testing::Values(Case{"auto", "pp=2", "gpt2"}, Case{"auto", "pp=2", "t5"},
                      Case{"auto", "pp=2", "gemma3"}, Case{"auto", "pp=2", "gemma4-shared"},
                      Case{"auto", "pp=2", "gemma4-shared", "1f1b", 2},
                      Case{"auto", "pp=2", "gpt-neox"}, Case{"auto", "pp=2", "qwen3-moe-balanced"},
                      Case{"auto", "pp=2", "blip2-opt", "1f1b", 2},
                      Case{"auto", "pp=4", "blip2-t5"}, Case{"auto", "pp=2", "idefics3"},
                      Case{"auto", "pp=2", "smolvlm"},
                      Case{"zero1", "pp=2,fsdp=2", "t5", "1f1b", 2}));

// What ranks share of a layer: tables of positions, q, k and v in one product. A head each is all
// that two ranks can have of this GPT-2.
INSTANTIATE_TEST_SUITE_P(
    FamiliesAlongTp, ManyRanks,
    ::testing::Values(Case{"auto", "tp=2", "gpt2"}, Case{"auto", "tp=2", "opt-plain"},
                      Case{"auto", "tp=4", "opt-plain"}, Case{"fsdp", "fsdp=2,tp=2", "gpt2"},
                      Case{"zero1", "fsdp=2,tp=2", "opt-plain"}, Case{"auto", "pp=2,tp=2", "gpt2"},
                      Case{"auto", "tp=2", "opt-after"}, Case{"auto", "tp=2", "t5"},
                      Case{"auto", "tp=4", "t5-gated"}, Case{"auto", "tp=2", "blip2-opt"},
                      Case{"fsdp", "fsdp=2,tp=2", "t5"}, Case{"auto", "pp=2,tp=2", "t5"},
                      Case{"auto", "pp=2,tp=2", "blip2-t5"}, Case{"auto", "tp=2", "idefics3"},
                      Case{"fsdp", "fsdp=2,tp=2", "smolvlm"}));

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
