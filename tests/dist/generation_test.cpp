// Stages of a pipeline write, token by token, what one process writes: a decoder's stages keep
// their own layers' keys, also those of what an encoder has read, which flows through them only
// once.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "engine/strategy.h"
#include "ranks_main.h"
#include "recipe/mesh.h"
#include "support/tiny_training.h"
#include "use/generate/generate_ids.h"

namespace snug {
namespace generation_test {

using tests::TinyRun;

struct Case {
  const char* model;
  const char* strategy;
  const char* mesh;
  int64_t interleave = 1;
};

std::string name_of(const Case& c) {
  return std::string(c.model) + ", " + c.mesh + (c.interleave > 1 ? ", interleaved" : "");
}

// A decoder's prompts are equally long.
std::vector<use::Prompt> prompts_for(const data::Reading& reads) {
  std::mt19937 random(3);
  std::vector<use::Prompt> prompts;
  for (const int length : {5, 3, 4}) {
    use::Prompt& prompt = prompts.emplace_back();
    prompt.ids.assign(static_cast<size_t>(reads.num_picture_tokens), reads.picture_token);
    for (int i = 0; i < (reads.source ? length : 4); ++i)
      prompt.ids.push_back(static_cast<int32_t>(random() % 90));
    for (int64_t i = 0; i < reads.image_size * reads.image_size * 3; ++i)
      prompt.picture.push_back(static_cast<uint8_t>(random()));
  }
  return prompts;
}

std::vector<std::vector<int32_t>> write(TinyRun& run, int64_t num_beams) {
  use::ModelLogits model(*run.engine.executor, *run.model, run.engine.precision.compute);
  const std::vector<use::Prompt> prompts = prompts_for(run.model->reads());
  std::vector<std::vector<int32_t>> written;
  for (const use::GeneratedIds& made : use::generate_ids(model, prompts,
                                                         {.max_new_tokens = 8,
                                                         .sampling = {.temperature = 0},
                                                         .num_beams = num_beams,
                                                         .end_ids = {1}}))
    written.push_back(made.ids);
  return written;
}

class StagesWrite : public testing::TestWithParam<Case> {};

TEST_P(StagesWrite, WhatOneProcessWrites) {
  const Case& c = GetParam();
  recipe::MeshShape shape;
  ASSERT_EQ(recipe::read_mesh(c.mesh, shape), "");
  if (shape.num_ranks() != test::world().size()) GTEST_SKIP() << "another number of ranks";
  SCOPED_TRACE(name_of(c));
  const data::SampleStore samples =
      tests::random_samples(8, 12, 5, tests::tiny_model(c.model)->reads());
  recipe::Recipe recipe = tests::tiny_recipe();
  recipe.train.micro_batch_size = 2;
  TinyRun one(recipe, samples, c.model);
  recipe.strategy = c.strategy;
  recipe.mesh = c.mesh;
  recipe.pipeline_interleave = c.interleave;
  const auto mesh =
      test::world().make_mesh(engine::strategy_of(recipe, test::world().size(), 2).mesh, at::kCPU);
  TinyRun many(recipe, samples, c.model, tests::test_device(), mesh);
  for (const int64_t num_beams : {1, 3}) {
    const auto expected = write(one, num_beams);
    EXPECT_GT(expected[0].size() + expected[1].size() + expected[2].size(), 3U);
    EXPECT_EQ(write(many, num_beams), expected) << num_beams << " beams";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, StagesWrite,
    testing::Values(Case{"llama", "auto", "pp=2"}, Case{"t5", "auto", "pp=2"},
                    Case{"t5-gated", "auto", "pp=2", 2}, Case{"blip2-opt", "auto", "pp=2", 2},
                    Case{"blip2-t5", "auto", "pp=2"}, Case{"t5", "auto", "pp=4"},
                    Case{"blip2-t5", "auto", "pp=4"}, Case{"t5", "fsdp", "pp=2,fsdp=2"},
                    Case{"blip2-t5", "zero1", "pp=2,fsdp=2", 2}, Case{"t5", "auto", "pp=2,tp=2"},
                    Case{"olmoe", "auto", "ep=2"}, Case{"gpt-oss", "auto", "pp=2,ep=2"}));

}  // namespace generation_test
}  // namespace snug
