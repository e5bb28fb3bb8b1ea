// The table of models by name, and what a user's word for a model stands for.
// SPDX-License-Identifier: Apache-2.0
#include "recipe/hub_models.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "recipe/parse.h"
#include "support/temp_folder.h"

namespace snug::recipe {
namespace {

namespace fs = std::filesystem;

TEST(HubModels, NoNameStandsForTwo) {
  std::set<std::string> ids, names;
  for (const HubModel& model : hub_models())
    for (const std::string& id : model.ids) {
      EXPECT_TRUE(ids.insert(id).second) << id;
      EXPECT_TRUE(names.insert(short_name(id)).second) << id;
    }
  EXPECT_GE(ids.size(), 80U);
}

TEST(HubModels, EachSaysWhereItsSizeIsPublished) {
  for (const HubModel& model : hub_models()) {
    EXPECT_TRUE(model.source.starts_with("https://")) << model.id();
    EXPECT_GT(model.size(), 1e7) << model.id();
    EXPECT_FALSE(model.published.empty()) << model.id();
  }
}

TEST(HubModels, AreFoundAsPeopleWriteThem) {
  for (const char* name : {"Qwen/Qwen3-8B", "qwen/qwen3-8b", "qwen3-8b", "Qwen3-8B"})
    EXPECT_EQ(hub_id_of(name), "Qwen/Qwen3-8B") << name;
  EXPECT_EQ(hub_id_of("llama-3.3-70b"), "meta-llama/Llama-3.3-70B-Instruct");
  EXPECT_EQ(hub_id_of("llama-3.1-8b"), "meta-llama/Llama-3.1-8B") << "not one that begins so";
  for (const char* name : {"qwen3", "llama", "m", "", "Qwen/Qwen3-9B", "qwen3-8b-in"})
    EXPECT_EQ(hub_id_of(name), "") << name;
  ASSERT_NE(find_hub_model("Qwen/Qwen3-8B-Base"), nullptr);
  EXPECT_EQ(find_hub_model("Qwen/Qwen3-8B-Base")->id(), "Qwen/Qwen3-8B");
}

// A test's own folder, since what lies there decides.
class ModelFolder : public testing::Test {
 protected:
  void SetUp() override { fs::current_path(folder_.path()); }
  void TearDown() override { fs::current_path(before_); }

  const fs::path before_ = fs::current_path();
  test::TempFolder folder_;
};

TEST_F(ModelFolder, AnIdIsWhereItWasDownloadedTo) {
  EXPECT_EQ(model_folder("Qwen/Qwen3-8B"), "checkpoints/Qwen/Qwen3-8B");
  EXPECT_EQ(model_folder("qwen3-8b"), "checkpoints/Qwen/Qwen3-8B");
  EXPECT_EQ(model_folder("who/knows-1B"), "who/knows-1B") << "nobody knows";
  EXPECT_EQ(imported_model_folder("who/knows-1B"), "checkpoints/who/knows-1B");
  fs::create_directories("checkpoints/who/knows-1B");
  EXPECT_EQ(model_folder("who/knows-1B"), "checkpoints/who/knows-1B");
}

TEST_F(ModelFolder, APathStaysAPath) {
  fs::create_directories("out/run");
  fs::create_directories("qwen3-8b");
  fs::create_directories("Qwen/Qwen3-4B");
  for (const char* path : {"out/final", "qwen3-8b", "Qwen/Qwen3-4B", "./who/knows", "../who/knows",
                           "/who/knows", "~/models", "who/model.gguf", "models/config.json",
                           "checkpoints/who/knows", "checkpoints/knows", "nowhere", ""})
    EXPECT_EQ(model_folder(path), path);
}

TEST(HubModels, QuantizedCopiesKeepTheModelsName) {
  for (const char* end : {"", "-bnb-4bit", "-unsloth-bnb-4bit", "-awq", "-gptq-int4", "-fp8",
                          "-fp8-dynamic", "-quantized.w4a16", "-int4-autoround", "-nvfp4"})
    EXPECT_EQ(name_before_quantization("qwen3-8b" + std::string(end)), "qwen3-8b") << end;
  EXPECT_EQ(name_before_quantization("gpt-oss-20b"), "gpt-oss-20b");
}

// Each command that takes a model takes its name.
TEST_F(ModelFolder, EveryCommandKnowsNames) {
  const auto parsed = [](const std::vector<std::string>& words) {
    return parse_command_line(words);
  };
  const std::string folder = "checkpoints/Qwen/Qwen3-8B";
  EXPECT_EQ(parsed({"plan", "qwen3-8b"}).recipe.checkpoint_dir, folder);
  EXPECT_EQ(parsed({"finetune_full", "--model", "qwen3-8b"}).recipe.checkpoint_dir, folder);
  EXPECT_EQ(parsed({"generate", "qwen3-8b"}).generate.checkpoint_dir, folder);
  EXPECT_EQ(parsed({"chat", "qwen3-8b"}).chat.checkpoint_dir, folder);
  EXPECT_EQ(parsed({"caption", "qwen3-8b", "a.jpg"}).caption.checkpoint_dir, folder);
  EXPECT_EQ(parsed({"evaluate", "qwen3-8b", "--data.json_path", "a.json"}).evaluate.checkpoint_dir,
            folder);
  EXPECT_EQ(parsed({"data", "rows.jsonl", "--model", "qwen3-8b"}).show_data.checkpoint_dir, folder);
  EXPECT_EQ(parsed({"download", "qwen3-8b"}).download.repo_id, "Qwen/Qwen3-8B");
  EXPECT_EQ(parsed({"download", "who/knows"}).download.repo_id, "who/knows");
  EXPECT_EQ(parsed({"convert", "qwen3-8b", "to.gguf"}).convert.source, folder);
  EXPECT_EQ(parsed({"merge", "out/final", "--base", "qwen3-8b"}).merge.pretrained_checkpoint_dir,
            folder);
}

}  // namespace
}  // namespace snug::recipe
