// What must hold for models that look at pictures, with either kind of language model: techniques
// change nothing, plans are measurements, and what is frozen stays as it is.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "core/memory/disk_file.h"
#include "engine/adapters/adapters.h"
#include "engine/adapters/trained_parts.h"
#include "engine/batch.h"
#include "plan/candidate.h"
#include "plan/predict.h"
#include "support/case_sample.h"
#include "support/fixed_order.h"
#include "support/random_recipe.h"
#include "support/source_dir.h"
#include "support/techniques.h"
#include "support/temp_folder.h"
#include "support/wide_blip2.h"

namespace snug {
namespace {

using tests::eight_in;
using tests::tiny_model;
using tests::tiny_recipe;
using tests::TinyRun;

data::SampleStore samples_for(const std::string& shape) {
  return tests::random_samples(8, 12, 5, tiny_model(shape)->reads());
}

// What trains, and how it is stored.
struct Trained {
  const char* name;
  void (*set_up)(recipe::Recipe&);
};

constexpr Trained kTrained[] = {
    {"all", [](recipe::Recipe&) {}},
    {"all in bfloat16", [](recipe::Recipe& r) { r.precision = "bf16-true"; }},
    {"what is between", [](recipe::Recipe& r) { r.model.train_parts = "qformer,projection"; }},
    {"vision and language",
     [](recipe::Recipe& r) {
       r.model.train_parts = "vision,language";
       r.precision = "bf16-mixed";
     }},
    {"adapters of the language model",
     [](recipe::Recipe& r) { r.lora = {.enabled = true, .r = 3, .dropout = 0.2, .mlp = true}; }},
    {"adapters beside a whole Q-Former",
     [](recipe::Recipe& r) {
       r.model.train_parts = "qformer,projection";
       r.lora = {.enabled = true, .r = 3, .dropout = 0.2, .mlp = true};
     }},
    {"adapters of vision and queries beside 4 bits",
     [](recipe::Recipe& r) {
       r.quantize = "bnb.nf4";
       r.lora = {.enabled = true, .r = 3, .target_modules = "qkv,query"};
     }},
    {"all, states in 8 bits", [](recipe::Recipe& r) { r.optimizer.name = "adamw_8bit"; }},
    {"all in bfloat16, states in 8 bits",
     [](recipe::Recipe& r) {
       r.precision = "bf16-true";
       r.optimizer.name = "adamw_8bit";
     }},
    {"what is between, states in 8 bits",
     [](recipe::Recipe& r) {
       r.model.train_parts = "qformer,projection";
       r.optimizer.name = "adamw_8bit";
     }},
};

class Blip2 : public ::testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }
  void SetUp() override {
    if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
  }

  // Wide enough for the optimizer's states to be what it keeps of large tensors.
  std::string shape_for(const recipe::Recipe& recipe) const {
    return recipe.optimizer.name == "adamw_8bit" ? wide_.shape() : GetParam();
  }

 private:
  const tests::WideBlip2 wide_{GetParam()};
};

void expect_states_as_asked(const TinyRun& run) {
  EXPECT_EQ(count_8bit_states(run) > 0, run.recipe.optimizer.name == "adamw_8bit");
}

std::vector<double> train(TinyRun& run, int64_t micro_batch_size, int steps) {
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) losses.push_back(run.step(eight_in(micro_batch_size), 1e-2).loss);
  return losses;
}

void expect_same_weights(const TinyRun& a, const TinyRun& b) {
  ASSERT_EQ(a.engine.parameters.size(), b.engine.parameters.size());
  for (size_t i = 0; i < a.engine.parameters.size(); ++i) {
    const at::Tensor& expected = a.engine.parameters[i].tensor;
    EXPECT_TRUE(at::equal(expected, b.engine.parameters[i].tensor.to(expected.options())))
        << a.engine.parameters[i].name;
  }
}

// Dropout included: what is computed again drops the same. A GPU adds up the gradients' norm in
// another order than the host, so that nothing is clipped there.
TEST_P(Blip2, TechniquesTrainToTheSameBitsAsPlain) {
  const tests::FixedOrder fixed_order;
  const data::SampleStore samples = samples_for(GetParam());
  uint32_t seed = 0;
  for (const size_t t :
       tests::sample_of(std::size(kTrained), fmt::format("kinds of training of {}", GetParam()))) {
    const Trained& trained = kTrained[t];
    recipe::Recipe base = tiny_recipe();
    if (tests::test_device().is_cpu()) base.train.max_norm = 0.5;
    trained.set_up(base);
    const std::string shape = shape_for(base);
    TinyRun plain(base, samples, shape);
    expect_states_as_asked(plain);
    const std::vector<double> expected = train(plain, 8, 3);
    for (const size_t i :
         tests::sample_of(std::size(tests::kTechniques),
                          fmt::format("techniques {} of {}", ++seed, GetParam()))) {
      const tests::Technique& technique = tests::kTechniques[i];
      SCOPED_TRACE(std::string(trained.name) + ", " + technique.name);
      recipe::Recipe recipe = base;
      technique.turn_on(recipe);
      // The norm is added up unit by unit there.
      if (recipe.optimizer_in_backward) continue;
      TinyRun run(recipe, samples, shape);
      run.engine.copies->set_late(true);
      EXPECT_EQ(expected, train(run, 8, 3));
      expect_same_weights(plain, run);
    }
  }
}

TEST_P(Blip2, TechniquesTogetherTrainToTheSameBitsAsPlain) {
  const tests::FixedOrder fixed_order;
  const data::SampleStore samples = samples_for(GetParam());
  for (const size_t t : tests::sample_of(std::size(kTrained),
                                         fmt::format("cut kinds of training of {}", GetParam()))) {
    const Trained& trained = kTrained[t];
    recipe::Recipe base = tiny_recipe();
    trained.set_up(base);
    const std::string shape = shape_for(base);
    TinyRun plain(base, samples, shape);
    const std::vector<double> expected = train(plain, 8, 3);
    {
      SCOPED_TRACE(std::string(trained.name) + ", in backward alone");
      recipe::Recipe recipe = base;
      recipe.optimizer_in_backward = true;
      TinyRun run(recipe, samples, shape);
      EXPECT_EQ(expected, train(run, 8, 3));
      expect_same_weights(plain, run);
    }
    for (const char* checkpointing : {"none", "selective", "all", "every:3"}) {
      SCOPED_TRACE(std::string(trained.name) + ", checkpointing " + checkpointing);
      recipe::Recipe recipe = base;
      recipe.activation_checkpointing = checkpointing;
      recipe.activation_offload = true;
      recipe.optimizer_in_backward = true;
      recipe.optimizer_offload = "cpu";
      recipe.weight_streaming = true;
      recipe.offload_prefetch = "true";
      TinyRun run(recipe, samples, shape);
      run.engine.copies->set_late(true);
      EXPECT_EQ(expected, train(run, 8, 3));
      expect_same_weights(plain, run);
    }
  }
}

TEST_P(Blip2, AnyCutOfTheGlobalBatchTrainsTheSame) {
  const data::SampleStore samples = samples_for(GetParam());
  recipe::Recipe recipe = tiny_recipe();
  recipe.model.dropout = 0;  // which would be another micro-batch's
  TinyRun whole(recipe, samples, GetParam());
  const std::vector<double> expected = train(whole, 8, 5);
  EXPECT_LT(expected.back(), expected.front());
  for (const int64_t size : {1, 4}) {
    TinyRun cut(recipe, samples, GetParam());
    const std::vector<double> losses = train(cut, size, 5);
    for (size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], expected[i], 1e-4 * expected[i]) << "step " << i;
  }
}

TEST_P(Blip2, DropoutIsTheRecipesToSay) {
  const tests::FixedOrder fixed_order;
  const data::SampleStore samples = samples_for(GetParam());
  recipe::Recipe recipe = tiny_recipe();
  TinyRun first(recipe, samples, GetParam()), again(recipe, samples, GetParam());
  recipe.model.dropout = 0.5;
  TinyRun more(recipe, samples, GetParam());
  recipe.model.dropout = 0;
  TinyRun none(recipe, samples, GetParam());
  recipe.seed += 1;
  TinyRun none_of_another_seed(recipe, samples, GetParam());
  const std::vector<double> losses = train(first, 8, 2);
  EXPECT_EQ(losses, train(again, 8, 2));
  EXPECT_NE(losses, train(more, 8, 2));
  const std::vector<double> without = train(none, 8, 2);
  EXPECT_NE(losses, without);
  EXPECT_EQ(without, train(none_of_another_seed, 8, 2));
}

TEST_P(Blip2, FrozenPartsStayAsTheyAre) {
  const data::SampleStore samples = samples_for(GetParam());
  for (const char* parts : {"vision", "qformer", "projection", "language", "qformer,projection"}) {
    SCOPED_TRACE(parts);
    recipe::Recipe recipe = tiny_recipe();
    recipe.model.train_parts = parts;
    TinyRun run(recipe, samples, GetParam());
    std::map<const nn::Parameter*, at::Tensor> before;
    for (nn::Parameter* p : run.model->parameters()) before[p] = p->value.detach().clone();
    train(run, 8, 2);
    int64_t trained = 0;
    for (const models::ModelPart& part : run.model->parts()) {
      const bool trains =
          ("," + std::string(parts) + ",").find("," + part.name + ",") != std::string::npos;
      for (nn::Unit* unit : part.units)
        for (const nn::Parameter* p : unit->parameters()) {
          EXPECT_EQ(at::equal(p->value, before.at(p)), !trains) << p->name;
          EXPECT_FALSE(p->value.grad().defined()) << p->name;
          if (trains) trained += p->num_elements();
        }
    }
    EXPECT_EQ(engine::count_parameters(*run.model).trained, trained);
  }
}

// Samples 0, 1 and 2 with these pictures.
data::MicroBatch three_with(TinyRun& run, const data::SampleStore& store,
                            const std::vector<int64_t>& pictures) {
  const std::vector<int64_t> samples = {0, 1, 2};
  data::MicroBatch batch = *run.batches->make(samples);
  batch.pixels.clear();
  tests::add_pictures(batch, store, pictures);
  return batch;
}

// And no other document's logits.
TEST_P(Blip2, AnotherPictureIsAnotherLoss) {
  const tests::FixedOrder fixed_order;
  const data::SampleStore samples = samples_for(GetParam());
  TinyRun run(tiny_recipe(), samples, GetParam());
  const nn::Batch batch =
      engine::to_device(three_with(run, samples, {0, 1, 2}), tests::test_device());
  const nn::Batch other =
      engine::to_device(three_with(run, samples, {0, 7, 2}), tests::test_device());
  exec::Executor& executor = *run.engine.executor;
  const double loss = executor.forward_backward(batch, {});
  EXPECT_EQ(executor.forward_backward(batch, {}), loss);
  EXPECT_GT(std::abs(executor.forward_backward(other, {}) - loss), 1e-3 * loss);
  const at::Tensor logits = executor.last_logits(batch, at::kFloat);
  const at::Tensor others = executor.last_logits(other, at::kFloat);
  for (const int64_t document : {0, 2}) EXPECT_TRUE(at::equal(logits[document], others[document]));
  EXPECT_GT((logits[1] - others[1]).abs().max().item<double>(),
            1e-3 * logits[1].abs().max().item<double>());
}

// A picture has no other way into the language model than the rows that it stands in.
TEST_P(Blip2, PicturesThatStandInNoRowsChangeNothing) {
  const data::SampleStore samples = samples_for(GetParam());
  TinyRun run(tiny_recipe(), samples, GetParam());
  const auto loss_with = [&](const std::vector<int64_t>& pictures, void (*change)(nn::Batch&)) {
    nn::Batch batch = engine::to_device(three_with(run, samples, pictures), tests::test_device());
    change(batch);
    return run.engine.executor->objective(batch, {});
  };
  const auto in_no_rows = [](nn::Batch& batch) { batch.picture_rows.reset(); };
  const double loss = loss_with({0, 1, 2}, in_no_rows);
  EXPECT_EQ(loss_with({5, 6, 7}, in_no_rows), loss);
  EXPECT_EQ(loss_with({0, 1, 2}, [](nn::Batch& batch) { batch.pixels.reset(); }), loss);
  EXPECT_GT(std::abs(loss_with({0, 1, 2}, [](nn::Batch&) {}) - loss), 1e-3 * loss);
}

// Adapters start as zero, so that the first step of what trains together is that of each alone.
TEST_P(Blip2, PartsBesideAdaptersTakeTheStepOfEachAlone) {
  const data::SampleStore samples = samples_for(GetParam());
  recipe::Recipe adapters = tiny_recipe();
  adapters.model.dropout = 0;
  adapters.lora = {.enabled = true, .r = 3};
  recipe::Recipe parts = tiny_recipe();
  parts.model.dropout = 0;
  parts.model.train_parts = "qformer,projection";
  recipe::Recipe both = adapters;
  both.model.train_parts = parts.model.train_parts;
  TinyRun together(both, samples, GetParam());
  const std::vector<double> losses = train(together, 8, 1);
  std::map<std::string, at::Tensor> found;
  for (const auto& parameter : together.engine.parameters)
    found[parameter.name] = parameter.tensor.detach();
  size_t count = 0;
  for (const recipe::Recipe& recipe : {adapters, parts}) {
    TinyRun alone(recipe, samples, GetParam());
    EXPECT_EQ(train(alone, 8, 1), losses);
    for (const auto& parameter : alone.engine.parameters) {
      ASSERT_TRUE(found.contains(parameter.name)) << parameter.name;
      EXPECT_TRUE(at::allclose(found[parameter.name], parameter.tensor, 1e-6, 1e-7))
          << parameter.name;
      ++count;
    }
  }
  EXPECT_EQ(found.size(), count) << "and nothing else trains";
  EXPECT_NE(train(together, 8, 1), losses);
}

// Layers of a part that trains whole get no adapter, and a recipe that leaves none is refused.
TEST_P(Blip2, AdaptersStayOutOfPartsThatTrainWhole) {
  recipe::Recipe recipe = tiny_recipe();
  recipe.lora = {.enabled = true, .r = 3, .target_modules = "qkv,query"};
  recipe.model.train_parts = "qformer";
  const auto model = tiny_model(GetParam());
  engine::choose_trained(*model, recipe);
  for (const models::ModelPart& part : model->parts())
    for (nn::Unit* unit : part.units)
      for (const nn::Linear* linear : unit->linears())
        EXPECT_EQ(linear->adapter() != nullptr,
                  part.name == "vision" && linear->name().ends_with("qkv"))
            << linear->name();
  recipe.lora.target_modules = "query";
  EXPECT_THROW(engine::choose_trained(*model, recipe), UserError);
}

TEST_P(Blip2, PartsThatAModelLacksAreRefused) {
  recipe::Recipe recipe = tiny_recipe();
  recipe.model.train_parts = "vision";
  EXPECT_THROW(engine::choose_trained(*tiny_model("llama"), recipe), UserError);
}

TEST_P(Blip2, PlanIsTheMeasurementToTheByte) {
  for (const size_t trial : tests::trials_of(60, fmt::format("plans of {}", GetParam()))) {
    std::mt19937 random = tests::trial_random(17, trial);
    recipe::Recipe recipe = tests::random_recipe(random);
    if (!recipe.lora.target_modules.empty()) recipe.lora.target_modules = "qkv,query,value";
    if (!recipe.lora.enabled && random() % 2)
      recipe.model.train_parts = random() % 2 ? "qformer,projection" : "vision,language";
    if (recipe.lora.enabled && random() % 2) recipe.model.train_parts = "qformer,projection";
    SCOPED_TRACE(fmt::format("trial {}: {}, trains {}", trial, tests::describe(recipe, GetParam()),
                             recipe.model.train_parts));
    const auto model = tiny_model(GetParam());
    const data::Reading reading = model->reads();
    const data::SampleStore samples = tests::random_samples(16, 30, random(), reading);
    const int64_t size = recipe.train.micro_batch_size;
    const auto plan_of = [&](const data::MicroBatch& batch) {
      return plan::predict(*model, recipe, batch, 128, {.device = tests::test_device().type()});
    };
    const plan::Prediction predicted = plan_of(data::make_micro_batch(
        samples, samples.longest_samples(size), tests::batch_options(recipe, *model)));
    const auto largest =
        plan::largest_micro_batch({.samples = samples, .reading = reading}, recipe, size);
    EXPECT_GE(plan_of(largest).peak_allocated, predicted.peak_allocated);
    const int64_t before = tests::test_ledger().allocated();
    const int64_t host_before = memory::cpu_host_ledger().allocated();
    tests::test_ledger().reset_peak();
    memory::cpu_host_ledger().reset_peak();
    {
      TinyRun run(recipe, samples, GetParam());
      run.run.scaler().restore(1, 0);  // a step that overflows would not be taken
      const auto count = static_cast<size_t>(plan::micro_batches_that_matter(recipe));
      for (int step = 0; step < (recipe.delayed_parameter_update ? 2 : 1); ++step)
        run.step(engine::SampleIndices(count, samples.longest_samples(size)), 1e-2);
    }
    EXPECT_EQ(predicted.peak_allocated, tests::test_ledger().at_peak().allocated - before);
    EXPECT_EQ(predicted.peak_host + predicted.host_staging,
              memory::cpu_host_ledger().at_peak().allocated - host_before);
    EXPECT_EQ(tests::test_ledger().allocated(), before) << "bytes left behind";
    EXPECT_EQ(memory::cpu_host_ledger().allocated(), host_before) << "bytes left on the host";
  }
}

// Features of the picture pass through the Q-Former's layers: each keeps its queries beside them.
TEST_P(Blip2, WhatPassesThroughIsKeptOnce) {
  const std::filesystem::path original =
      tests::source_dir() / "tests/data/parity" / GetParam() / "config.json";
  const data::Reading reading = tiny_model(GetParam())->reads();
  const data::SampleStore samples = tests::random_samples(8, 12, 5, reading);
  recipe::Recipe recipe = tiny_recipe();
  recipe.activation_checkpointing = "all";
  recipe.activation_offload = true;
  const test::TempFolder folder;
  const auto on_host = [&](int layers) {
    nlohmann::json config = nlohmann::json::parse(read_file(original));
    config["qformer_config"]["num_hidden_layers"] = layers;
    config["qformer_config"]["cross_attention_frequency"] = 1;
    write_file_atomically(folder / "config.json", config.dump());
    const auto model = models::model_from_config(folder / "config.json");
    return plan::predict(
               *model, recipe,
               plan::largest_micro_batch({.samples = samples, .reading = reading}, recipe, 8), 128)
        .peak_host;
  };
  constexpr int64_t kQuerySize = 16, kPictures = 8;
  EXPECT_EQ(on_host(5) - on_host(4), kPictures * reading.num_picture_tokens * kQuerySize * 4);
}

// 30 blocks with queries of 576 and values of 192 features; the vision model's layers are called
// alike.
TEST(SmolVlmAdapters, SwitchesReachTheLanguageModelAlone) {
  const auto model =
      models::model_from_config(tests::source_dir() / "recipes/models/smolvlm-256m.json");
  recipe::Recipe recipe = tiny_recipe();
  recipe.lora = {.enabled = true, .r = 16, .head = true};
  engine::choose_trained(*model, recipe);
  EXPECT_EQ(engine::count_parameters(*model).trained,
            16 * (30 * (2 * 576 + 576 + 192) + 576 + 49280));
  recipe.lora.target_modules = "q_proj,v_proj";
  engine::choose_trained(*model, recipe);
  EXPECT_EQ(engine::count_parameters(*model).trained,
            16 * (30 * (2 * 576 + 576 + 192) + 12 * 4 * 768));
}

// 72 attention modules of the T5 stacks, 2 matrices each of 16 x (4096 + 4096).
TEST(Blip2Adapters, NamesOfModulesReachTheLanguageModelAlone) {
  const auto model =
      models::model_from_config(tests::source_dir() / "recipes/models/blip2-flan-t5-xxl.json");
  recipe::Recipe recipe = tiny_recipe();
  recipe.lora = {.enabled = true, .r = 16, .target_modules = "q,v"};
  engine::choose_trained(*model, recipe);
  EXPECT_EQ(engine::count_parameters(*model).trained, 18'874'368);
  recipe.lora.target_modules.clear();  // by the switches: query and value
  engine::choose_trained(*model, recipe);
  EXPECT_EQ(engine::count_parameters(*model).trained, 18'874'368);
}

INSTANTIATE_TEST_SUITE_P(Languages, Blip2, ::testing::Values("blip2-opt", "blip2-t5"),
                         [](const auto& info) { return std::string(info.param).substr(6); });

}  // namespace
}  // namespace snug
