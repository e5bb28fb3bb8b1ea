// Idefics3 and SmolVLM: sizes as published, what is refused, parts, pictures' places.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "models/family.h"
#include "support/temp_folder.h"

namespace snug::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Idefics3 : public ::testing::Test {
 protected:
  std::unique_ptr<Model> model_of(const json& config) {
    write_file_atomically(folder_ / "config.json", config.dump());
    return model_from_config(folder_ / "config.json");
  }
  std::string refusal_of(const std::function<void(json&)>& change) {
    json config = tiny();
    change(config);
    try {
      model_of(config);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }
  static json tiny() {
    return json::parse(
        read_file(fs::path(SNUG_SOURCE_DIR) / "tests/data/parity/idefics3/config.json"));
  }

  const test::TempFolder folder_;
};

// The first two have 64 places a picture, the last one 81: of 27 patches a side, three become one.
TEST_F(Idefics3, SizesAreAsPublished) {
  const auto expect = [](const char* name, int64_t parameters, int64_t places, int64_t side) {
    const auto model = model_from_config(fs::path(SNUG_SOURCE_DIR) / "recipes/models" / name);
    EXPECT_EQ(model->num_parameters(), parameters) << name;
    EXPECT_EQ(model->reads().num_picture_tokens, places) << name;
    EXPECT_EQ(model->reads().image_size, side) << name;
  };
  expect("smolvlm-256m.json", 256'484'928, 64, 512);
  expect("smolvlm-500m.json", 507'482'304, 64, 512);
  expect("smolvlm-2.2b.json", 2'246'272'880, 81, 384);
}

TEST_F(Idefics3, WhatTheirTrainingWroteIsLeftOut) {
  json config = tiny();
  config["text_config"].update({{"is_llama_config", true},
                                {"perceiver_config", {{"resampler_depth", 6}}},
                                {"pixel_shuffle_factor", 4},
                                {"qk_layer_norms", false}});
  const json written = model_of(config)->hugging_face_config();
  EXPECT_FALSE(written["text_config"].contains("perceiver_config"));
  EXPECT_EQ(written, model_of(tiny())->hugging_face_config());
}

TEST_F(Idefics3, ConfigsThatCannotBeAreRefused) {
  const auto expect = [&](const std::function<void(json&)>& change, const char* words) {
    const std::string message = refusal_of(change);
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  expect([](json& c) { c["text_config"]["model_type"] = "qwen2"; }, "supported is llama");
  expect([](json& c) { c["text_config"]["qk_layer_norms"] = true; }, "qk_layer_norms = true");
  expect([](json& c) { c["text_config"]["mystery"] = 3; }, "mystery");
  expect([](json& c) { c["image_token_id"] = 96; }, "outside the vocabulary of 96");
  expect([](json& c) { c["scale_factor"] = 3; }, "not a multiple of scale_factor = 3");
  expect([](json& c) { c["vision_config"]["num_attention_heads"] = 5; }, "not a multiple of");
  // 25 patches a side: transformers gives the fifth the position of the fourth.
  expect(
      [](json& c) {
        c["vision_config"]["image_size"] = 75;
        c["scale_factor"] = 5;
      },
      "gives two patches the same position");
}

// Each rank of tensor parallelism has whole heads of each.
TEST_F(Idefics3, RanksShareHeadsOfBothModels) {
  std::vector<int64_t> counts;
  for (const HeadCount& heads : model_of(tiny())->head_counts()) counts.push_back(heads.count);
  EXPECT_EQ(counts, (std::vector<int64_t>{2, 4, 2}));
}

TEST_F(Idefics3, PartsAreAllUnits) {
  const auto model = model_of(tiny());
  std::vector<nn::Unit*> units;
  std::string names;
  for (const ModelPart& part : model->parts()) {
    names += part.name + " ";
    units.insert(units.end(), part.units.begin(), part.units.end());
  }
  EXPECT_EQ(names, "vision projection language ");
  EXPECT_EQ(units, model->units());
}

// transformers ties by the key beside the parts, whatever text_config says.
TEST_F(Idefics3, AnOwnHeadIsWrittenBesideTheParts) {
  json config = tiny();
  config["tie_word_embeddings"] = true;
  const auto tied = model_of(config), own = model_with_own_head(*tied);
  EXPECT_EQ(tied->num_parameters() + 96 * 32, own->num_parameters());
  EXPECT_EQ(own->hugging_face_config()["tie_word_embeddings"], false);
}

TEST_F(Idefics3, PixelsAreNormalisedAsTheFileBesideSays) {
  EXPECT_EQ(model_of(tiny())->reads().image_mean[1], 0.5F);
  write_file_atomically(folder_ / "preprocessor_config.json",
                        json{{"image_mean", {0.5, 0.25, 0.125}}}.dump());
  const data::Reading reads = model_of(tiny())->reads();
  EXPECT_EQ(reads.image_mean[1], 0.25F);
  EXPECT_EQ(reads.image_std[1], 0.5F);
}

}  // namespace
}  // namespace snug::models
