// SPDX-License-Identifier: Apache-2.0
#include "engine/parallel/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>

#include "base/error.h"
#include "core/memory/ledger.h"
#include "core/nn/linear.h"
#include "data/micro_batch.h"
#include "engine/batch.h"
#include "engine/parallel/state_shapes.h"
#include "engine/techniques/behaviour.h"
#include "models/family.h"

namespace snug::engine {
namespace {

std::unique_ptr<models::Model> model_named(const std::string& shape) {
  return models::model_from_config(std::filesystem::path(SNUG_SOURCE_DIR) / "tests/data/parity" /
                                   shape / "config.json");
}

dist::MeshShape stages_of(int count) {
  dist::MeshShape shape;
  shape[dist::Axis::Pipeline] = count;
  return shape;
}

std::vector<std::string> names_of(const std::vector<nn::Unit*>& units) {
  std::vector<std::string> names;
  for (const nn::Unit* unit : units) names.push_back(unit->name());
  return names;
}

// Work as its products' weights have elements.
class Worker : public nn::Unit {
 public:
  explicit Worker(int64_t work)
      : Unit("worker", nn::UnitKind::Block),
        linear_("linear", nn::Role::Other, 1, work, nn::Bias::None) {}
  nn::State forward(const nn::State& input, const nn::Batch& /*batch*/,
                    const nn::Pass& /*pass*/) override {
    return input;
  }
  std::vector<nn::Parameter*> parameters() override { return {&linear_.weight()}; }
  std::vector<nn::Linear*> linears() override { return {&linear_}; }

 private:
  nn::Linear linear_;
};

std::vector<int64_t> begins(const std::vector<int64_t>& work, int64_t stages, int64_t chunks = 1) {
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<nn::Unit*> units;
  for (const int64_t w : work) {
    workers.push_back(std::make_unique<Worker>(w));
    units.push_back(workers.back().get());
  }
  return deal_units(units, stages, chunks).begins;
}

TEST(Stages, ThePlaceWithMostWorkHasAsLittleAsCanBe) {
  using Begins = std::vector<int64_t>;
  EXPECT_EQ(begins({1, 10, 10, 10, 10, 5}, 2), (Begins{0, 3, 6}));
  EXPECT_EQ(begins({1, 10, 10, 10, 10, 30}, 2), (Begins{0, 4, 6}));
  EXPECT_EQ(begins({10, 10, 10, 10}, 4), (Begins{0, 1, 2, 3, 4}));
  EXPECT_EQ(begins({10, 10, 10, 10, 10, 10, 10, 10}, 2, 2), (Begins{0, 2, 4, 6, 8}));
  EXPECT_EQ(begins({1, 1, 1, 100}, 3), (Begins{0, 1, 3, 4}));
}

TEST(Stages, FewerUnitsThanPlacesAreRefused) {
  EXPECT_THROW(begins({1, 1, 1}, 4), UserError);
  EXPECT_THROW(begins({1, 1, 1}, 2, 2), UserError);
}

TEST(Stages, EachUnitIsInOnePlace) {
  const auto model = model_named("llama");
  const StageLayout layout = deal_units(model->units(), 2, 2);
  EXPECT_EQ(layout.begins, (std::vector<int64_t>{0, 1, 2, 3, 4}));
  for (int64_t unit = 0; unit < 4; ++unit) {
    EXPECT_EQ(layout.place_of(unit), unit);
    EXPECT_EQ(layout.stage_of(unit), unit % 2);
  }
}

TEST(Stages, AHeadThatIsTiedHasACopyOfTheEmbedding) {
  const auto model = model_named("qwen2");
  const std::vector<nn::Unit*> units = model->units();
  const nn::Parameter& weight = *units.front()->parameters().front();
  const Stage first = make_stage(*model, {}, *dist::planned_mesh(stages_of(2), 0));
  EXPECT_TRUE(first.added.empty());
  EXPECT_TRUE(first.is_common(weight));
  EXPECT_FALSE(first.is_counted_elsewhere(weight));
  const Stage last = make_stage(*model, {}, *dist::planned_mesh(stages_of(2), 1));
  ASSERT_EQ(last.added.size(), 1U);
  const auto names = names_of(last.units);
  ASSERT_GE(names.size(), 2U);
  EXPECT_EQ(names[names.size() - 2], units.front()->name());
  EXPECT_EQ(names.back(), units.back()->name());
  EXPECT_EQ(last.positions[names.size() - 2], -1);
  EXPECT_TRUE(last.is_counted_elsewhere(weight));
  ASSERT_EQ(last.ranges.size(), 1U);
  EXPECT_TRUE(last.ranges.front().ends_model);
  EXPECT_TRUE(last.ranges.front().gradient_leaves);
  // One process has both.
  const Stage alone = make_stage(*model, {}, *dist::single_mesh());
  EXPECT_EQ(alone.units, units);
  EXPECT_TRUE(alone.common.empty());
}

TEST(Stages, WhatWouldLetCopiesDriftApartIsRefused) {
  const auto model = model_named("qwen2");
  const auto mesh = dist::planned_mesh(stages_of(2), 1);
  recipe::Recipe recipe;
  recipe.optimizer_in_backward = true;
  try {
    make_engine(*model, recipe, at::kMeta, 128, mesh);
    ADD_FAILURE() << "not refused";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("stages of the pipeline"), std::string::npos);
  }
  recipe.optimizer_in_backward = false;
  recipe.optimizer.stochastic_rounding = true;
  EXPECT_THROW(make_stage(*model, recipe, *mesh), UserError);
}

// Known without asking anybody, and without counting in a plan.
TEST(Stages, ShapesOfWhatFlowsBetweenThem) {
  const auto model = model_named("llama");
  const auto mesh = dist::planned_mesh(stages_of(4), 2);
  recipe::Recipe recipe;
  recipe.precision = "bf16-true";
  const auto shapes = state_shapes(*model, recipe, deal_units(model->units(), 4, 1), *mesh);
  data::MicroBatch flat;
  flat.input_ids = flat.targets = flat.positions = {0, 1, 2, 3, 4};
  flat.cu_seqlens = {0, 5};
  flat.max_seqlen = 5;
  const exec::MicroBatch batch{.batch = to_device(flat, at::kCPU),
                               .pass = {.compute = at::kBFloat16}};
  memory::meta_ledger().reset_peak();
  const int64_t before = memory::meta_ledger().allocated();
  const std::vector<nn::State> states = shapes(batch);
  ASSERT_EQ(states.size(), 4U);
  EXPECT_TRUE(states[0].entries().empty());
  for (size_t place = 1; place < 4; ++place) {
    const at::Tensor& hidden = states[place].at("hidden");
    EXPECT_TRUE(hidden.is_meta());
    EXPECT_EQ(hidden.sizes(), (at::IntArrayRef{5, model->dimensions().hidden_size}));
    EXPECT_EQ(hidden.scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(memory::meta_ledger().at_peak().allocated, before);
}

// An encoder-decoder's norm and second embedding stand between its blocks, and are none.
TEST(Checkpointing, CountsBlocksOfAllStacks) {
  using enum nn::UnitKind;
  const std::vector<nn::UnitKind> kinds = {Embedding, Block, Block, Block, Norm,
                                           Embedding, Block, Block, Head};
  const auto checkpointed = [&](const char* choice) {
    recipe::Recipe recipe;
    recipe.activation_checkpointing = choice;
    return checkpointed_units(recipe, kinds);
  };
  EXPECT_EQ(checkpointed("every:2"), (std::vector<bool>{0, 1, 0, 1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(checkpointed("0,3-4"), (std::vector<bool>{0, 1, 0, 0, 0, 0, 1, 1, 0}));
  EXPECT_EQ(checkpointed("all"), std::vector<bool>(kinds.size(), true));
  EXPECT_EQ(checkpointed("selective"), std::vector<bool>(kinds.size(), false));
  EXPECT_THROW(checkpointed("5"), UserError);
}

}  // namespace
}  // namespace snug::engine
