// `snug caption` and captions in `snug evaluate`, with a small random BLIP-2: which pictures are
// read, where captions go, what is refused.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "system/program.h"

namespace snug::tests {
namespace {

using Words = std::vector<std::string>;
using nlohmann::json;

const fs::path kData = fs::path(SNUG_SOURCE_DIR) / "tests/data";

class Captions : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(model_);
    fs::create_directories(photos_ / "more");
    for (const char* name : {"config.json", "model.safetensors", "preprocessor_config.json"})
      fs::copy_file(kData / "parity/blip2-opt" / name, model_ / name);
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
      fs::copy_file(kData / "system/tiny" / name, model_ / name);
    fs::copy_file(kData / "pictures/rgba.png", photos_ / "a.png");
    fs::copy_file(kData / "pictures/turned2.jpg", photos_ / "b.jpg");
    fs::copy_file(kData / "pictures/lossy.webp", photos_ / "more/c.WEBP");
    std::ofstream(photos_ / "notes.md") << "no picture";
  }

  Result caption(Words more) const {
    more.insert(more.begin(), {"caption", model_});
    more.insert(more.end(), {"--precision", "32-true", "--max_new_tokens", "6"});
    return run(more);
  }

  TempFolder folder_;
  fs::path model_ = folder_ / "model", photos_ = folder_ / "photos";
};

std::vector<json> lines_of(const fs::path& file) {
  std::vector<json> lines;
  std::istringstream text(read_file(file));
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
  return lines;
}

TEST_F(Captions, OfAFolderAreTheSameInAnyCompany) {
  const Result all = caption({photos_, "--format", "jsonl", "--out", folder_ / "all.jsonl"});
  ASSERT_EQ(all.exit_code, 0) << all.output;
  const std::vector<json> lines = lines_of(folder_ / "all.jsonl");
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[2]["file"], (photos_ / "more/c.WEBP").string());
  for (const json& line : lines) {
    const fs::path own = folder_ / "own.jsonl";
    const Result one = caption({line["file"], "--format", "jsonl", "--out", own, "--force"});
    ASSERT_EQ(one.exit_code, 0) << one.output;
    EXPECT_EQ(lines_of(own).at(0), line);
  }
  const Result again = caption({photos_, "--out", folder_ / "all.jsonl"});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_NE(again.output.find("--force"), std::string::npos) << again.output;
}

TEST_F(Captions, BesidePicturesAreNotWrittenOver) {
  std::ofstream(photos_ / "a.txt") << "mine\n";
  const Result first = caption({photos_, "--beside"});
  ASSERT_EQ(first.exit_code, 0) << first.output;
  EXPECT_EQ(read_file(photos_ / "a.txt"), "mine\n");
  EXPECT_TRUE(fs::exists(photos_ / "b.txt"));
  EXPECT_TRUE(fs::exists(photos_ / "more/c.txt"));
  ASSERT_EQ(caption({photos_ / "a.png", "--beside", "--force"}).exit_code, 0);
  EXPECT_NE(read_file(photos_ / "a.txt"), "mine\n");
}

TEST_F(Captions, PassOverWhatCannotBeRead) {
  std::ofstream(photos_ / "b.jpg", std::ios::trunc) << "\xff\xd8 broken";
  const Result result = caption({(photos_ / "*.png").string(), photos_ / "b.jpg"});
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_NE(result.output.find("b.jpg"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("1 of 2 pictures could not be read"), std::string::npos)
      << result.output;
  EXPECT_NE(result.output.find("a.png\t"), std::string::npos) << result.output;
}

TEST_F(Captions, RefuseWhatMakesNoSense) {
  EXPECT_EQ(caption({photos_ / "none.png"}).exit_code, 2);
  EXPECT_EQ(caption({folder_ / "model"}).exit_code, 2) << "a folder without pictures";
  EXPECT_EQ(caption({photos_, "--beside", "--out", folder_ / "x"}).exit_code, 2);
  EXPECT_EQ(run({"caption", model_}).exit_code, 2);
}

TEST_F(Captions, AreScoredWithAllReferencesOfAPicture) {
  // In letters that the model's small vocabulary has.
  std::ofstream(photos_ / "metadata.jsonl") << R"({"file_name": "a.png", "text": "RED"})"
                                            << "\n"
                                            << R"({"file_name": "b.jpg", "text": "TURNED"})"
                                            << "\n"
                                            << R"({"file_name": "a.png", "text": "CRIMSON"})"
                                            << "\n";
  const Result result = run({"evaluate", model_, "--data", "ImageFolder", "--data.path", photos_,
                             "--precision", "32-true", "--num_beams", "2", "--max_new_tokens", "4",
                             "--captions_file", folder_ / "found.jsonl", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const json figures = json::parse(result.output.substr(result.output.find('{')));
  EXPECT_EQ(figures["samples"], 3);
  EXPECT_EQ(figures["pictures"], 2);
  for (const char* key : {"bleu_1", "bleu_4", "rouge_l", "cider_d"}) {
    EXPECT_GE(figures[key].get<double>(), 0) << key;
    EXPECT_LE(figures[key].get<double>(), 10) << key;
  }
  size_t references = 0;
  for (const json& line : lines_of(folder_ / "found.jsonl"))
    references += line["references"].size();
  EXPECT_EQ(references, 3U);
}

// scripts/demo-caption at reduced length: its pictures, recipe and page.
TEST(DemoCaption, LearnsFromNothing) {
  const fs::path root = SNUG_SOURCE_DIR;
  const fs::path font = "/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf";
  const fs::path names = "/usr/share/unicode/cldr/common/annotations/en.xml";
  if (!fs::exists(font) || !fs::exists(names))
    GTEST_SKIP() << "fonts-noto-color-emoji and unicode-cldr-core are not installed";
  const TempFolder folder;
  const std::string food = folder / "food", out = folder / "out", tools = root / "scripts/lib";
  const std::string sheet = folder / "captions.jsonl", page = folder / "page.html";
  const Result drawn = run_in_shell("python3 '" + tools + "/food_pictures.py' --things 4 " +
                                    "--pictures 96 --held_out 4 '" + font.string() + "' '" +
                                    names.string() + "' '" + food + "'");
  ASSERT_EQ(drawn.exit_code, 0) << drawn.output;
  const Result trained = run(
      {"finetune_full", food + "/model", "--config", root / "recipes/demo-caption.yaml",
       "--model.config", root / "recipes/models/tiny-blip2.json", "--data.path", food + "/train",
       "--out_dir", out, "--train.max_steps", "60", "--train.lr_warmup_steps", "5"});
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const json record = read_run(out);
  EXPECT_LT(record["steps"].back()["loss"].get<double>(), 2.5);
  EXPECT_EQ(record["memory"]["predicted"]["peak_allocated"],
            record["memory"]["measured"]["peak_allocated"]);
  const Result told = run({"caption", out + "/final", food + "/held-out", "--precision", "32-true",
                           "--format", "jsonl", "--out", sheet});
  ASSERT_EQ(told.exit_code, 0) << told.output;
  const std::vector<json> lines = lines_of(sheet);
  ASSERT_EQ(lines.size(), 4U);
  for (const json& line : lines)
    EXPECT_NE(line["caption"].get<std::string>().find(" and "), std::string::npos) << line;
  const Result shown =
      run_in_shell("python3 '" + tools + "/contact_sheet.py' '" + food +
                   "/held-out/metadata.jsonl' '" + sheet + "' '" + sheet + "' '" + page + "'");
  ASSERT_EQ(shown.exit_code, 0) << shown.output;
  EXPECT_NE(read_file(page).find("data:image/png;base64,"), std::string::npos);
}

}  // namespace
}  // namespace snug::tests
