// `snug caption` and captions in `snug evaluate`, with a small random BLIP-2: which pictures are
// read, where captions go, what is refused.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
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

TEST_F(Captions, PassOverWhatDesktopsLeaveBehind) {
  fs::create_directories(photos_ / ".thumbnails");
  fs::copy_file(photos_ / "a.png", photos_ / "._a.png");
  fs::copy_file(photos_ / "a.png", photos_ / ".thumbnails/a.png");
  std::ofstream(photos_ / ".DS_Store") << "x";
  const Result all = caption({photos_, "--format", "jsonl", "--out", folder_ / "all.jsonl"});
  ASSERT_EQ(all.exit_code, 0) << all.output;
  EXPECT_EQ(lines_of(folder_ / "all.jsonl").size(), 3U);
}

TEST_F(Captions, RefuseWhatMakesNoSense) {
  const Result folder = caption({photos_, "--out", folder_ / "model"});
  EXPECT_EQ(folder.exit_code, 2);
  EXPECT_NE(folder.output.find("this is a folder; name a file"), std::string::npos)
      << folder.output;
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
  for (const json& line : lines_of(folder_ / "found.jsonl")) {
    references += line["references"].size();
    EXPECT_TRUE(fs::is_regular_file(line["file"])) << line;
  }
  EXPECT_EQ(references, 3U);
  const Result some = run({"evaluate", model_, "--data", "ImageFolder", "--data.path", photos_,
                           "--precision", "32-true", "--micro_batch_size", "1", "--max_iters", "2",
                           "--captions", "false", "--json"});
  ASSERT_EQ(some.exit_code, 0) << some.output;
  EXPECT_EQ(json::parse(some.output.substr(some.output.find('{')))["samples"], 2);
}

// Of two rows one is held out, and one has no picture: where that is the held-out one, the run goes
// on without validation; where there is nothing to learn from, it does not.
TEST_F(Captions, ARunOutlivesABrokenValidationPart) {
  const std::string config = std::string(SNUG_SOURCE_DIR) + "/recipes/models/tiny-blip2.json";
  const fs::path words_only = folder_ / "words";
  fs::create_directories(words_only);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    fs::copy_file(kData / "system/tiny" / name, words_only / name);
  int num_ok = 0;
  for (const bool first_is_broken : {true, false}) {
    std::ofstream(photos_ / "metadata.jsonl")
        << R"({"file_name": ")" << (first_is_broken ? "gone.png" : "a.png")
        << R"(", "text": "RED"})"
        << "\n"
        << R"({"file_name": ")" << (first_is_broken ? "a.png" : "gone.png")
        << R"(", "text": "RED"})"
        << "\n";
    Words words = {"finetune_full", words_only, "--model.config", config};
    words.insert(words.end(), {"--data", "ImageFolder", "--data.path", photos_});
    words.insert(words.end(), {"--data.val_split_fraction", "0.5", "--precision", "32-true"});
    words.insert(words.end(), {"--train.max_steps", "2", "--train.epochs", "2"});
    words.insert(words.end(), {"--train.global_batch_size", "1", "--train.micro_batch_size", "1"});
    words.insert(words.end(), {"--train.lr_warmup_steps", "5", "--eval.interval", "1"});
    words.insert(words.end(), {"--out_dir", folder_ / "out"});
    const Result result = run(words);
    if (result.exit_code == 0) {
      ++num_ok;
      EXPECT_NE(result.output.find("no validation: not one of the 1 held-out samples"),
                std::string::npos)
          << result.output;
      EXPECT_EQ(result.output.find("never reaches"), std::string::npos)
          << "the warm-up is warned of once" << result.output;
    } else {
      EXPECT_NE(result.output.find("none of 1 pictures could be read"), std::string::npos)
          << result.output;
    }
  }
  EXPECT_EQ(num_ok, 1);
}

// The whole script at reduced length: pictures, training, captions before and after, scores, sheet.
TEST(DemoCaption, LearnsFromNothing) {
  const fs::path root = SNUG_SOURCE_DIR;
  for (const char* needed :
       {"/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf",
        "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
        "/usr/share/unicode/cldr/common/annotations/en.xml", "/usr/lib/python3/dist-packages/PIL"})
    if (!fs::exists(needed))
      GTEST_SKIP() << needed << " is missing: apt-get install fonts-noto-color-emoji "
                   << "fonts-dejavu-core unicode-cldr-core python3-pil";
  const TempFolder folder;
  const std::string script = (root / "scripts/demo-caption").string();
  const Result demo = run_in_shell(fmt::format(
      "SNUG_SKIP_PACKAGES=1 SNUG_PROGRAM='{}' '{}' --pictures 96 --out '{}' --train.max_steps 60 "
      "--train.lr_warmup_steps 5",
      SNUG_BINARY, script, (folder / "demo").string()));
  ASSERT_EQ(demo.exit_code, 0) << demo.output;
  EXPECT_NE(demo.output.find("held-out captions are right word for word"), std::string::npos)
      << demo.output;
  EXPECT_NE(demo.output.find("CIDEr-D"), std::string::npos) << demo.output;
  const fs::path out = folder / "demo/demo-caption";
  const json record = read_run(out);
  EXPECT_LT(record["steps"].back()["loss"].get<double>(), 3.0);
  EXPECT_EQ(record["memory"]["predicted"]["peak_allocated"],
            record["memory"]["measured"]["peak_allocated"]);
  const std::vector<json> before = lines_of(out / "before.jsonl"),
                          after = lines_of(out / "after.jsonl");
  ASSERT_EQ(before.size(), 16U);
  ASSERT_EQ(after.size(), 16U);
  for (const json& line : before)
    EXPECT_EQ(line["caption"].get<std::string>().find(" and "), std::string::npos) << line;
  for (const json& line : after)
    EXPECT_NE(line["caption"].get<std::string>().find(" and "), std::string::npos) << line;
  EXPECT_NE(read_file(out / "captions.html").find("data:image/png;base64,"), std::string::npos);
  const std::string sheet = read_file(out / "captions.png");
  EXPECT_TRUE(sheet.starts_with("\x89PNG")) << sheet.size();
  EXPECT_GT(sheet.size(), 20'000U) << "sixteen pictures with their captions";
}

}  // namespace
}  // namespace snug::tests
