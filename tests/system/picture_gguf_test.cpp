// A model with pictures in tiles as a pair of GGUF files: it captions, answers and learns as its
// directory does, and comes back as one.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "system/program.h"

namespace snug::tests {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

const fs::path kTests = fs::path(SNUG_SOURCE_DIR) / "tests/data";
const fs::path kTiles = kTests / "system/smolvlm";

class PictureGguf : public testing::Test {
 protected:
  void SetUp() override { pair_ = convert(kTiles, "small.gguf", {"--dtype", "float32"}); }

  fs::path convert(const fs::path& from, const fs::path& name, Words more) {
    more.insert(more.begin(), {"convert", from, folder_ / name});
    const Result result = run(more);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    said_ = result.output;
    return folder_ / name;
  }

  const TempFolder folder_;
  fs::path pair_;
  std::string said_;  // by the last conversion
};

TEST_F(PictureGguf, BothFilesAreNamedAndNeitherIsReplaced) {
  const std::string second = folder_ / "mmproj-small.gguf";
  EXPECT_EQ(said_, pair_.string() + "\n" + second + "\n");
  fs::remove(pair_);
  const Result again = run({"convert", kTiles, pair_});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_NE(again.output.find(second + " exists already"), std::string::npos) << again.output;
}

TEST_F(PictureGguf, ComesBackAsTheDirectoryThatItWas) {
  const fs::path before = convert(kTiles, "before", {}), after = convert(pair_, "after", {});
  EXPECT_TRUE(read_file(before / "model.safetensors") == read_file(after / "model.safetensors"));
  const json config = json::parse(read_file(after / "config.json"));
  EXPECT_EQ(config["model_type"], "idefics3");
  EXPECT_EQ(config["image_token_id"], 302);
  const json pictures = json::parse(read_file(after / "preprocessor_config.json"));
  EXPECT_EQ(pictures["size"]["longest_edge"], 56);
  EXPECT_EQ(json::parse(read_file(after / "processor_config.json"))["image_seq_len"], 4);
}

TEST_F(PictureGguf, CaptionsAreThoseOfTransformers) {
  const json expected = json::parse(read_file(kTiles / "captions.json"));
  Words command = {"caption",     pair_,      "--prompt", "What is this?",      "--num_beams",
                   "1",           "--format", "jsonl",    "--max_new_tokens",   "12",
                   "--precision", "32-true",  "--out",    folder_ / "out.jsonl"};
  for (const json& row : expected)
    command.push_back(kTests / "pictures" / row["file"].get<std::string>());
  const Result result = run(command);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  std::ifstream lines(folder_ / "out.jsonl");
  std::string line;
  for (const json& row : expected) {
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_EQ(json::parse(line)["caption"], row["caption"]) << row["file"];
  }
}

TEST_F(PictureGguf, AnswersToPicturesAreThoseOfTransformers) {
  for (const json& chat : json::parse(read_file(kTiles / "chats.json"))) {
    Words command = {
        "generate",    folder_.path(), "--prompt", chat["prompt"], "--temperature",    "0",
        "--precision", "32-true",      "--json",   "true",         "--max_new_tokens", "12"};
    if (chat["system"] != "") command.insert(command.end(), {"--sys_prompt", chat["system"]});
    for (const json& picture : chat["pictures"])
      command.insert(command.end(), {"--image", kTests / "pictures" / picture.get<std::string>()});
    const Result result = run(command);
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(json::parse(result.output.substr(result.output.find("{\"ended")))["text"],
              chat["answer"])
        << chat;
  }
}

TEST_F(PictureGguf, LearnsAsItsDirectoryDoes) {
  const fs::path photos = folder_ / "photos";
  fs::create_directory(photos);
  std::ofstream captions(photos / "metadata.jsonl");
  for (const char* name : {"rgb.png", "line.png", "one.png", "l.png"}) {
    fs::copy_file(kTests / "pictures" / name, photos / name);
    captions << json{{"file_name", name}, {"text", name}} << "\n";
  }
  captions.close();
  const auto train = [&](const fs::path& model, const std::string& out) {
    const Result result = run({"finetune_full",
                               model,
                               "--out_dir",
                               folder_ / out,
                               "--data",
                               "ImageFolder",
                               "--data.path",
                               photos,
                               "--data.val_split_fraction",
                               "0",
                               "--data.prompt",
                               "What?",
                               "--precision",
                               "32-true",
                               "--train.max_steps",
                               "3",
                               "--train.global_batch_size",
                               "4",
                               "--train.micro_batch_size",
                               "2",
                               "--seed",
                               "3"});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return folder_ / out;
  };
  const fs::path ours = train(pair_, "pair"), wanted = train(kTiles, "directory");
  EXPECT_EQ(losses(read_run(ours)), losses(read_run(wanted)));
  EXPECT_TRUE(read_file(ours / "final/model.safetensors") ==
              read_file(wanted / "final/model.safetensors"));
  EXPECT_EQ(json::parse(read_file(ours / "final/preprocessor_config.json"))["size"],
            (json{{"longest_edge", 56}}));
}

TEST_F(PictureGguf, OllamaTakesBothFiles) {
  const fs::path folder = convert(kTiles, "mine", {"--to", "ollama", "--gguf_type", "Q8_0"});
  const std::string text = read_file(folder / "Modelfile");
  EXPECT_TRUE(text.starts_with("FROM ./mine.gguf\nFROM ./mmproj-mine.gguf\n")) << text;
  EXPECT_TRUE(fs::exists(folder / "mine.gguf"));
  EXPECT_TRUE(fs::exists(folder / "mmproj-mine.gguf"));
}

}  // namespace
}  // namespace snug::tests
