// BLIP-2's configs: sizes as published, what they leave out, what is refused; names in files.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "files/weights/safetensors/safetensors.h"
#include "models/family.h"
#include "support/temp_folder.h"

namespace snug::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kSource = SNUG_SOURCE_DIR;

std::string message_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

class Blip2 : public ::testing::Test {
 protected:
  std::unique_ptr<Model> model_of(const json& config) {
    write_file_atomically(folder_ / "config.json", config.dump());
    return model_from_config(folder_ / "config.json");
  }
  static json tiny(const char* name = "blip2-opt") {
    return json::parse(read_file(kSource / "tests/data/parity" / name / "config.json"));
  }

  const test::TempFolder folder_;
};

struct Size {
  const char* name;
  int64_t parameters;
};

class Sizes : public ::testing::TestWithParam<Size> {};

TEST_P(Sizes, CountAsPublished) {
  const fs::path config =
      kSource / "recipes/models" / (std::string("blip2-") + GetParam().name + ".json");
  EXPECT_EQ(model_from_config(config)->num_parameters(), GetParam().parameters);
}

INSTANTIATE_TEST_SUITE_P(All, Sizes,
                         ::testing::Values(Size{"opt-2.7b", 3'744'761'856},
                                           Size{"opt-6.7b", 7'752'869'376},
                                           Size{"flan-t5-xl", 3'942'446'592},
                                           Size{"flan-t5-xxl", 12'229'596'672}));

// Published configs leave out what is the default.
TEST_F(Blip2, SparseConfigsMeanTheDefaults) {
  const json opt = {{"model_type", "opt"},         {"hidden_size", 2560},
                    {"word_embed_proj_dim", 2560}, {"ffn_dim", 10240},
                    {"vocab_size", 50304},         {"num_hidden_layers", 32},
                    {"num_attention_heads", 32}};
  const auto model = model_of({{"model_type", "blip-2"},
                               {"vision_config", {{"dropout", 0.0}, {"num_channels", 3}}},
                               {"text_config", opt}});
  EXPECT_EQ(model->num_parameters(), 3'744'761'856);
  const data::Reading reads = model->reads();
  EXPECT_EQ(reads.image_size, 224);
  EXPECT_EQ(reads.num_picture_tokens, 32);
  EXPECT_EQ(reads.picture_token, 50265);
  EXPECT_FLOAT_EQ(reads.image_mean[0], 0.48145466F);
  EXPECT_FLOAT_EQ(reads.image_std[2], 0.27577711F);
  EXPECT_FALSE(reads.source);
  EXPECT_EQ(model_of({{"model_type", "blip-2"}, {"text_config", {{"model_type", "t5"}}}})
                ->reads()
                .picture_token,
            32100);
}

TEST_F(Blip2, PicturesArePreparedAsTheFileBesideSays) {
  const json own = {{"image_mean", {0.5, 0.25, 0.125}}, {"image_std", {1, 2, 3}}};
  write_file_atomically(folder_ / "processor_config.json", json{{"image_processor", own}}.dump());
  EXPECT_EQ(model_of(tiny())->reads().image_mean[2], 0.125F);
  write_file_atomically(folder_ / "preprocessor_config.json", json{{"do_normalize", false}}.dump());
  const auto model = model_of(tiny());
  EXPECT_EQ(model->reads().image_mean[2], 0);
  EXPECT_EQ(model_like(*model)->reads().image_std, (std::array<float, 3>{1, 1, 1}));
  write_file_atomically(folder_ / "preprocessor_config.json", json{{"rescale_factor", 1}}.dump());
  EXPECT_NE(message_of([&] { model_of(tiny()); }).find("only 1/255"), std::string::npos);
}

TEST_F(Blip2, ConfigsThatCannotBeAreRefused) {
  const auto refusal = [&](void (*change)(json&)) {
    json config = tiny();
    change(config);
    return message_of([&] { model_of(config); });
  };
  const auto expect = [&](void (*change)(json&), const char* words) {
    const std::string message = refusal(change);
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  expect([](json& c) { c.erase("text_config"); }, "\"text_config\" is missing");
  expect([](json& c) { c["text_config"]["model_type"] = "llama"; }, "supported are opt and t5");
  expect([](json& c) { c.erase("image_token_index"); },
         "the usual 50265 is outside the vocabulary of 96");
  expect([](json& c) { c["image_token_index"] = 96; }, "outside the vocabulary of 96");
  expect([](json& c) { c["vision_config"]["num_channels"] = 1; },
         "num_channels = 1 is out of range");
  expect([](json& c) { c["vision_config"]["num_attention_heads"] = 5; }, "not a multiple of");
  expect([](json& c) { c["qformer_config"]["encoder_hidden_size"] = 25; },
         "must equal the vision model's hidden_size = 24");
  expect([](json& c) { c["vision_config"]["hidden_act"] = "mish"; }, "mish");
  expect([](json& c) { c["text_config"]["word_embed_proj_dim"] = 16; },
         "text_config: word_embed_proj_dim = 16 is not hidden_size = ");
}

TEST_F(Blip2, PartsAreAllUnits) {
  const auto model = model_of(tiny());
  std::vector<nn::Unit*> units;
  std::string names;
  for (const ModelPart& part : model->parts()) {
    names += part.name + " ";
    units.insert(units.end(), part.units.begin(), part.units.end());
  }
  EXPECT_EQ(names, "vision qformer projection language ");
  EXPECT_EQ(units, model->units());
}

// The operations of one picture.
double picture_flops(const Model& model) {
  return 50 * (model.flops_per_token(50, 1) - model.flops_per_token(50, 0));
}

// ViT-g reads 257 positions of a picture, and 6 operations go with each of its weights.
TEST_F(Blip2, PicturesCountInOperations) {
  const auto model = model_from_config(kSource / "recipes/models/blip2-opt-2.7b.json");
  const double vision = 6.0 * 985e6 * 257;
  const double picture = picture_flops(*model);
  EXPECT_GT(picture, vision);
  EXPECT_LT(picture, 1.15 * vision);
  EXPECT_DOUBLE_EQ(model->flops_per_token(50, 4) - model->flops_per_token(50, 0), 4 * picture / 50);
  const ModelPart vision_part = model->parts().front();
  for (nn::Unit* unit : vision_part.units)
    for (nn::Parameter* parameter : unit->parameters()) parameter->trained = false;
  EXPECT_NEAR(picture - picture_flops(*model), vision * 2 / 3, 0.1 * vision);
}

TEST_F(Blip2, NamesWithModelBeforeThemAreFound) {
  const fs::path original = kSource / "tests/data/parity/blip2-t5";
  const auto source = files::open_safetensors(original / "model.safetensors");
  std::vector<files::TensorInfo> renamed;
  for (files::TensorInfo info : source->tensors()) {
    info.name = "model." + info.name;
    renamed.push_back(std::move(info));
  }
  files::write_sharded(folder_.path(), renamed, int64_t{1} << 30,
                       [&](const files::TensorInfo& info) {
                         return source->raw(*source->find(info.name.substr(6)));
                       });
  fs::copy(original / "config.json", folder_ / "config.json");
  const Checkpoint expected = open_checkpoint(original), found = open_checkpoint(folder_.path());
  const auto theirs = expected.model->parameters(), ours = found.model->parameters();
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i)
    EXPECT_TRUE(at::equal(read_parameter(found, *ours[i], at::kFloat),
                          read_parameter(expected, *theirs[i], at::kFloat)))
        << ours[i]->name;
}

TEST_F(Blip2, PicturesOfAnotherSizeAreRefused) {
  const auto model = model_of(tiny());
  nn::Batch batch;
  batch.pixels = at::empty({1, 14, 14, 3}, at::TensorOptions().dtype(at::kByte));
  const std::string message = message_of([&] { model->units().front()->forward({}, batch, {}); });
  EXPECT_NE(message.find("14 x 14 pixels, but this model's positions are for 12 x 12"),
            std::string::npos)
      << message;
}

}  // namespace
}  // namespace snug::models
