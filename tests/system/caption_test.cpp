// `snug caption` and captions in `snug evaluate`, with a small random BLIP-2: which pictures are
// read, where captions go, what is refused.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

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

  // Enough to train a model of one's own on: captions of photos_, and a tokenizer in words/.
  void add_captions_and_words() const {
    for (const char* caption : {"RED", "TURNED", "CRIMSON", "TURN"})
      std::ofstream(photos_ / "metadata.jsonl", std::ios::app)
          << json{{"file_name", "a.png"}, {"text", caption}}.dump() << "\n";
    fs::create_directories(folder_ / "words");
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
      fs::copy_file(kData / "system/tiny" / name, folder_ / "words" / name);
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

TEST_F(Captions, NameWhatInAFolderCannotBeRead) {
  std::ofstream(photos_ / "c.AVIF") << "unknown";
  fs::create_symlink("nowhere.png", photos_ / "d.png");
  fs::create_symlink("e.png", photos_ / "e.png");
  const Result result = caption({photos_});
  EXPECT_EQ(result.exit_code, 2) << result.output;
  for (const char* name : {"c.AVIF", "d.png", "e.png", "a.png\t"})
    EXPECT_NE(result.output.find(name), std::string::npos) << name << "\n" << result.output;
}

TEST_F(Captions, NoFileIsLeftOrEmptiedWhereNoPictureCouldBeRead) {
  std::ofstream(photos_ / "b.jpg", std::ios::trunc) << "\xff\xd8 broken";
  const fs::path out = folder_ / "out.txt";
  EXPECT_EQ(caption({photos_ / "b.jpg", "--out", out}).exit_code, 2);
  EXPECT_FALSE(fs::exists(out));
  std::ofstream(out) << "of an earlier run, which is longer than a caption of this model\n";
  const std::string before = read_file(out);
  EXPECT_EQ(caption({photos_ / "b.jpg", "--out", out, "--force"}).exit_code, 2);
  EXPECT_EQ(read_file(out), before);
  EXPECT_EQ(caption({photos_ / "a.png", "--out", out, "--force"}).exit_code, 0);
  EXPECT_TRUE(read_file(out).starts_with((photos_ / "a.png").string() + "\t")) << read_file(out);
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
  EXPECT_NE(folder.output.find("this is a folder; give a file"), std::string::npos)
      << folder.output;
  EXPECT_EQ(caption({photos_ / "none.png"}).exit_code, 2);
  EXPECT_EQ(caption({folder_ / "model"}).exit_code, 2) << "a folder without pictures";
  EXPECT_EQ(caption({photos_, "--beside", "--out", folder_ / "x"}).exit_code, 2);
  EXPECT_EQ(run({"caption", model_}).exit_code, 2);
}

// The rows of a data set get what their pictures get as files, each picture once, and as many rows
// as are asked for.
TEST_F(Captions, OfADataSetAreThoseOfItsFiles) {
  std::ofstream(photos_ / "metadata.jsonl")
      << R"({"file_name": "b.jpg", "text": ["TURNED", "RED"]})"
      << "\n"
      << R"({"file_name": "a.png"})"
      << "\n"
      << R"({"file_name": "gone.png", "text": "x"})"
      << "\n"
      << R"({"file_name": "b.jpg", "text": "GREEN"})"
      << "\n"
      << R"({"file_name": "more/c.WEBP", "text": "BLUE"})"
      << "\n";
  const fs::path out = folder_ / "rows.jsonl";
  const Words rows = {"--data",      "ImageFolder", "--data.path",  photos_, "--format", "jsonl",
                      "--out",       out,           "--batch_size", "2",     "--limit",  "4",
                      "--num_beams", "2",           "--score",      "true"};
  const Result result = caption(rows);
  EXPECT_EQ(result.exit_code, 2) << "one picture is not there: " << result.output;
  EXPECT_NE(result.output.find("1 of 4 pictures could not be read"), std::string::npos)
      << result.output;
  EXPECT_NE(result.output.find("BLEU-4"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("captions of 1 pictures"), std::string::npos)
      << "the one with captions: " << result.output;
  const std::vector<json> lines = lines_of(out);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0]["index"], 0);
  EXPECT_EQ(lines[0]["file"], (photos_ / "b.jpg").string());
  EXPECT_EQ(lines[0]["references"], json::array({"TURNED", "RED"}));
  EXPECT_EQ(lines[1]["index"], 1);
  EXPECT_FALSE(lines[1].contains("references"));
  EXPECT_EQ(lines[2]["index"], 3);
  EXPECT_EQ(lines[2]["caption"], lines[0]["caption"]);
  const fs::path own = folder_ / "own.jsonl";
  ASSERT_EQ(caption({photos_ / "b.jpg", photos_ / "a.png", "--format", "jsonl", "--out", own,
                     "--num_beams", "2"})
                .exit_code,
            0);
  const std::vector<json> files = lines_of(own);
  EXPECT_EQ(files[0]["caption"], lines[0]["caption"]);
  EXPECT_EQ(files[1]["caption"], lines[1]["caption"]);
  EXPECT_FALSE(files[0].contains("index"));
}

TEST_F(Captions, OfHuggingFacesSetsNameTheirPictures) {
  const Result result =
      caption({"--data", "HFDataset", "--data.path", kData / "picture_sets/parquet", "--format",
               "jsonl", "--out", folder_ / "rows.jsonl", "--batch_size", "2"});
  if (result.output.find("cannot read Arrow") != std::string::npos)
    GTEST_SKIP() << "this build has no Arrow";
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const std::vector<json> lines = lines_of(folder_ / "rows.jsonl");
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_EQ(lines[1]["file"], "rgba.png");
  EXPECT_EQ(lines[1]["references"], json::array({"Grüße vom Meer"}));
  EXPECT_EQ(lines[4]["index"], 4);
  const Result own = caption({kData / "pictures/rgba.png", "--format", "jsonl"});
  EXPECT_NE(own.output.find(lines[1]["caption"].dump()), std::string::npos)
      << own.output << lines[1];
}

TEST_F(Captions, RefuseDataThatMakesNoSense) {
  const auto refusal = [&](Words words) {
    const Result result = caption(std::move(words));
    EXPECT_EQ(result.exit_code, 2) << result.output;
    return result.output;
  };
  const auto expect = [&](const std::string& part, const Words& words) {
    EXPECT_NE(refusal(words).find(part), std::string::npos) << refusal(words);
  };
  std::ofstream(photos_ / "metadata.jsonl") << R"({"file_name": "a.png"})";
  const Words data = {"--data", "ImageFolder", "--data.path", photos_};
  const auto with = [&](Words more) {
    more.insert(more.begin(), data.begin(), data.end());
    return more;
  };
  expect("which column holds the captions", with({"--score"}));
  expect("both name pictures", with({photos_ / "a.png"}));
  expect("--beside needs picture files", with({"--beside"}));
  expect("--score needs a data set with captions", {photos_, "--score"});
  expect("also give its kind, --data ImageFolder", {"--data.path", photos_});
  expect("needs pictures", {});
  expect("neither metadata.jsonl nor metadata.csv",
         {"--data", "ImageFolder", "--data.path", model_});
  const Result nothing_asked = caption(with({}));
  EXPECT_EQ(nothing_asked.exit_code, 0) << nothing_asked.output;
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
  const Result again = run({"evaluate", model_, "--data", "ImageFolder", "--data.path", photos_,
                            "--captions_file", folder_ / "found.jsonl"});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_NE(again.output.find("found.jsonl exists already"), std::string::npos) << again.output;
  const Result some = run({"evaluate", model_, "--data", "ImageFolder", "--data.path", photos_,
                           "--precision", "32-true", "--micro_batch_size", "1", "--max_iters", "2",
                           "--captions", "false", "--json"});
  ASSERT_EQ(some.exit_code, 0) << some.output;
  EXPECT_EQ(json::parse(some.output.substr(some.output.find('{')))["samples"], 2);
}

// What trained whole beside the adapters lies in the adapter's folder, under the names that PEFT
// gives it, and counts wherever the adapter does.
TEST_F(Captions, PartsThatTrainedBesideAnAdapterGoWithIt) {
  for (const char* caption : {"RED", "TURNED", "CRIMSON", "TURN"})
    std::ofstream(photos_ / "metadata.jsonl", std::ios::app)
        << json{{"file_name", "a.png"}, {"text", caption}}.dump() << "\n";
  const Words data = {"--data", "ImageFolder", "--data.path", photos_, "--data.val_split_fraction",
                      "0.5",    "--precision", "32-true"};
  const auto train = [&](Words words, const fs::path& out) {
    words.insert(words.end(), data.begin(), data.end());
    words.insert(words.end(), {"--train.epochs", "9"});
    words.insert(words.end(), {"--train.global_batch_size", "2", "--train.micro_batch_size", "2"});
    words.insert(words.end(), {"--train.max_steps", "3", "--train.lr_warmup_steps", "0"});
    words.insert(words.end(), {"--eval.initial_validation", "false", "--eval.num_samples", "0"});
    words.insert(words.end(), {"--out_dir", out});
    const Result result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return out / "final";
  };
  const auto loss = [&](const fs::path& model) {
    Words words = {"evaluate", model};
    words.insert(words.end(), data.begin(), data.end());
    words.insert(words.end(), {"--captions", "false", "--split", "val", "--json"});
    const Result result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    if (result.exit_code != 0) return 0.0;
    return json::parse(result.output.substr(result.output.find('{')))["loss"].get<double>();
  };
  fs::create_directories(folder_ / "words");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    fs::copy_file(kData / "system/tiny" / name, folder_ / "words" / name);
  const std::string config = std::string(SNUG_SOURCE_DIR) + "/recipes/models/tiny-blip2.json";
  const fs::path base =
      train({"finetune_full", folder_ / "words", "--model.config", config}, folder_ / "first");
  const fs::path adapter = train(
      {"finetune", base, "--model.train_parts", "qformer,projection", "--optimizer.lr", "0.02"},
      folder_ / "second");
  const json written = json::parse(read_file(adapter / "adapter_config.json"));
  EXPECT_EQ(written["modules_to_save"], json::array({"qformer", "language_projection"}));
  const std::string weights = read_file(adapter / "adapter_model.safetensors");
  for (const char* name :
       {"base_model.model.query_tokens", "base_model.model.language_projection.weight",
        "base_model.model.qformer.encoder.layer.0.attention.attention.query.weight"})
    EXPECT_NE(weights.find(fmt::format("\"{}\"", name)), std::string::npos) << name;
  const json validation = json::parse(read_file(folder_ / "second/run.json"))["validation"];
  const double with_adapter = loss(adapter), at_the_end = validation.back()["loss"];
  EXPECT_NEAR(with_adapter, at_the_end, 1e-5);
  EXPECT_GT(std::abs(loss(base) - at_the_end), 0.01) << "nothing was learnt";
  ASSERT_EQ(
      run({"merge", adapter, "--out_dir", folder_ / "merged", "--dtype", "float32"}).exit_code, 0);
  EXPECT_NEAR(loss(folder_ / "merged"), with_adapter, 1e-4);
  const Result two =
      run({"generate", base, "--adapter", adapter, "--adapter", adapter, "--prompt", "a"});
  EXPECT_EQ(two.exit_code, 2) << "adapters that take turns share the base";
  EXPECT_NE(two.output.find("snug merge"), std::string::npos) << two.output;
}

// A checkpoint holds what trains; the parts that do not are read again when a run goes on.
TEST_F(Captions, PartsThatStayAsTheyAreOutliveAResume) {
  add_captions_and_words();
  const auto train = [&](const fs::path& out, const Words& more) {
    Words words = {"finetune_full", folder_ / "words"};
    const std::string config = std::string(SNUG_SOURCE_DIR) + "/recipes/models/tiny-blip2.json";
    words.insert(words.end(), {"--model.config", config, "--model.train_parts", "qformer"});
    words.insert(words.end(), {"--data", "ImageFolder", "--data.path", photos_});
    words.insert(words.end(), {"--data.val_split_fraction", "0.5", "--train.epochs", "9"});
    words.insert(words.end(), {"--train.global_batch_size", "2", "--train.micro_batch_size", "2"});
    words.insert(words.end(), {"--train.max_steps", "4", "--train.lr_warmup_steps", "0"});
    words.insert(words.end(), {"--train.save_interval", "2", "--out_dir", out});
    words.insert(words.end(), {"--eval.initial_validation", "false", "--eval.num_samples", "0"});
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return read_file(out / "final/model.safetensors");
  };
  const std::string straight = train(folder_ / "straight", {});
  const std::string resumed =
      train(folder_ / "resumed", {"--resume", (folder_ / "straight/step-000002").string()});
  EXPECT_TRUE(resumed == straight) << "other weights than of a run that was never stopped";
  EXPECT_TRUE(train(folder_ / "wide", {"--frozen_dtype", "float32"}) == straight)
      << "frozen weights are not written as they were, or rounded otherwise than by products";
}

// Adapters and what trains whole beside them go on as they were, with their optimizer states.
TEST_F(Captions, PartsBesideAnAdapterGoOnAfterAResume) {
  add_captions_and_words();
  const auto train = [&](Words words, const Words& more, const fs::path& out) {
    words.insert(words.end(), {"--data", "ImageFolder", "--data.path", photos_});
    words.insert(words.end(), {"--data.val_split_fraction", "0.5", "--train.epochs", "9"});
    words.insert(words.end(), {"--train.global_batch_size", "2", "--train.micro_batch_size", "2"});
    words.insert(words.end(), {"--train.lr_warmup_steps", "0", "--train.save_interval", "2"});
    words.insert(words.end(), {"--eval.initial_validation", "false", "--eval.num_samples", "0"});
    words.insert(words.end(), {"--optimizer.lr", "0.02", "--out_dir", out});
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return out / "final";
  };
  const std::string config = std::string(SNUG_SOURCE_DIR) + "/recipes/models/tiny-blip2.json";
  const fs::path base = train({"finetune_full", folder_ / "words", "--model.config", config},
                              {"--train.max_steps", "1"}, folder_ / "base");
  for (const Words& how : {Words{"--precision", "32-true"},
                           Words{"--precision", "bf16-true", "--quantize", "bnb.nf4"}}) {
    SCOPED_TRACE(how.back());
    const auto adapt = [&](const char* name, const Words& more) {
      Words words = {"finetune", base, "--model.train_parts", "qformer,projection"};
      words.insert(words.end(), {"--lora_r", "4", "--lora_dropout", "0.1"});
      words.insert(words.end(), how.begin(), how.end());
      return read_file(train(words, more, folder_ / how.back() / name) /
                       "adapter_model.safetensors");
    };
    const std::string straight = adapt("straight", {"--train.max_steps", "4"});
    EXPECT_NE(straight.find("\"base_model.model.query_tokens\""), std::string::npos);
    const std::string half = (folder_ / how.back() / "straight/step-000002").string();
    const std::string resumed = adapt("resumed", {"--train.max_steps", "4", "--resume", half});
    EXPECT_TRUE(resumed == straight) << "other weights than of a run that was never stopped";
    EXPECT_FALSE(adapt("half", {"--train.max_steps", "2"}) == straight)
        << "the last two steps change nothing";
  }
}

// Which thread reads a picture, and when it is done, shows nowhere.
TEST_F(Captions, AreInOrderWhateverReadsThePictures) {
  std::ofstream(photos_ / "d.png") << "no picture";
  fs::copy_file(photos_ / "a.png", photos_ / "e.png");
  fs::copy_file(photos_ / "b.jpg", photos_ / "f.jpg");
  const auto all = [&](const char* workers) {
    const fs::path out = folder_ / "all.jsonl";
    const Result result = caption({photos_, "--format", "jsonl", "--out", out, "--batch_size", "4",
                                   "--num_workers", workers, "--force"});
    EXPECT_EQ(result.exit_code, 2) << result.output;
    EXPECT_NE(result.output.find("1 of 6 pictures could not be read"), std::string::npos)
        << result.output;
    return read_file(out);
  };
  const std::string alone = all("0");
  EXPECT_EQ(std::ranges::count(alone, '\n'), 5);
  EXPECT_EQ(all("1"), alone);
  EXPECT_EQ(all("7"), alone);
}

// One of two rows is held out, and one has no picture: where that is the held-out one, the run goes
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
      EXPECT_NE(result.output.find("no validation: none of the 1 held-out samples"),
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

// A model with tiles and a chat template: what transformers' processor and generate() make of the
// same pictures (tests/oracles/smolvlm_captions.py). Line breaks become spaces here.
TEST_F(Captions, OfPicturesInTilesAreThoseOfTransformers) {
  const fs::path model = kData / "system/smolvlm";
  const json expected = json::parse(read_file(model / "captions.json"));
  ASSERT_EQ(expected.size(), 5U);
  Words command = {"caption",     model,      "--prompt", "What is this?",      "--num_beams",
                   "1",           "--format", "jsonl",    "--max_new_tokens",   "12",
                   "--precision", "32-true",  "--out",    folder_ / "out.jsonl"};
  for (const json& row : expected)
    command.push_back(kData / "pictures" / row["file"].get<std::string>());
  const Result result = run(command);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const std::vector<json> lines = lines_of(folder_ / "out.jsonl");
  ASSERT_EQ(lines.size(), expected.size());
  for (size_t i = 0; i < lines.size(); ++i)
    EXPECT_EQ(lines[i]["caption"], expected[i]["caption"]) << expected[i]["file"];
}

// With several pictures among the words of a prompt, after a system message, and without pictures.
TEST_F(Captions, PromptsWithPicturesAreAnsweredAsByTransformers) {
  const fs::path model = kData / "system/smolvlm";
  const json chats = json::parse(read_file(model / "chats.json"));
  ASSERT_EQ(chats.size(), 4U);
  for (const json& chat : chats) {
    Words command = {"generate",      model,  "--prompt",         chat["prompt"],
                     "--temperature", "0",    "--precision",      "32-true",
                     "--json",        "true", "--max_new_tokens", "12"};
    if (chat["system"] != "") command.insert(command.end(), {"--sys_prompt", chat["system"]});
    for (const json& picture : chat["pictures"])
      command.insert(command.end(), {"--image", kData / "pictures" / picture.get<std::string>()});
    const Result result = run(command);
    ASSERT_EQ(result.exit_code, 0) << result.output;
    const json line = json::parse(result.output.substr(result.output.find("{\"ended")));
    EXPECT_EQ(line["text"], chat["answer"]) << chat;
    EXPECT_EQ(line.value("images", json::array()).size(), chat["pictures"].size());
  }
}

TEST_F(Captions, PicturesThatAPromptDoesNotFitAreRefused) {
  const fs::path tiles = kData / "system/smolvlm", one = photos_ / "a.png";
  std::ofstream(photos_ / "text.png") << "no picture";
  const fs::path text = folder_ / "text";
  fs::copy(model_, text);
  for (const char* name : {"config.json", "model.safetensors"})
    fs::copy_file(kData / "parity/llama" / name, text / name, fs::copy_options::overwrite_existing);
  const std::vector<std::pair<Words, std::string>> cases{
      {{tiles, "--prompt", "<image> or <image>?", "--image", one}, "2 times for 1 picture"},
      {{tiles, "--prompt", "<image>?"}, "1 times for 0 pictures"},
      {{tiles, "--prompt", "x", "--image", photos_ / "text.png"}, "text.png"},
      {{tiles, "--prompt", "x", "--image", photos_ / "none.png"}, "none.png"},
      {{model_, "--prompt", "x", "--image", one, "--image", one}, "one picture at a time"},
      {{text, "--prompt", "x", "--image", one}, "cannot read pictures"}};
  for (const auto& [words, message] : cases) {
    Words command = words;
    command.insert(command.begin(), "generate");
    const Result result = run(command);
    EXPECT_EQ(result.exit_code, 2) << result.output;
    EXPECT_NE(result.output.find(message), result.output.npos) << result.output;
  }
}

// BLIP-2, whose picture may stand without a prompt.
TEST_F(Captions, AreWhatGenerateAnswers) {
  const Result asked = run({"generate", model_, "--image", photos_ / "a.png", "--temperature", "0",
                            "--max_new_tokens", "6", "--precision", "32-true", "--json", "true"});
  ASSERT_EQ(asked.exit_code, 0) << asked.output;
  const Result told = caption({photos_ / "a.png", "--num_beams", "1", "--format", "jsonl", "--out",
                               folder_ / "told.jsonl"});
  ASSERT_EQ(told.exit_code, 0) << told.output;
  std::string text = json::parse(asked.output.substr(asked.output.find("{\"ended")))["text"];
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\t' || c == '\r'; }, ' ');
  const std::string wanted = lines_of(folder_ / "told.jsonl").at(0)["caption"];
  EXPECT_FALSE(wanted.empty());
  EXPECT_NE(text.find(wanted), text.npos) << text;
}

// A picture whose tiles take all of the model's positions is named, and the others are captioned.
TEST_F(Captions, PassOverPicturesThatLeaveNoRoom) {
  const fs::path model = folder_ / "short";
  fs::copy(kData / "system/smolvlm", model, fs::copy_options::recursive);
  json config = json::parse(read_file(model / "config.json"));
  config["text_config"]["max_position_embeddings"] = 110;
  write_file_atomically(model / "config.json", config.dump());
  const Result result =
      run({"caption", model, kData / "pictures/l.png", kData / "pictures/one.png",
           "--max_new_tokens", "4", "--format", "jsonl", "--out", folder_ / "out.jsonl"});
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_EQ(lines_of(folder_ / "out.jsonl").size(), 1U) << result.output;
  for (const char* words : {"one.png: ", "leaves none"})
    EXPECT_NE(result.output.find(words), result.output.npos) << result.output;
}

// Adapters of both of its models beside 4 bits, then all weights; what is written captions again.
TEST_F(Captions, OfAModelWithTilesAreLearned) {
  const fs::path model = kData / "system/smolvlm";
  add_captions_and_words();
  const auto train = [&](const char* command, Words more) {
    more.insert(more.begin(), {command, model});
    more.insert(more.end(), {"--data",
                             "ImageFolder",
                             "--data.path",
                             photos_,
                             "--data.prompt",
                             "What is this?",
                             "--data.val_split_fraction",
                             "0",
                             "--precision",
                             "32-true",
                             "--train.max_steps",
                             "20",
                             "--train.lr_warmup_steps",
                             "0",
                             "--train.global_batch_size",
                             "4",
                             "--train.micro_batch_size",
                             "2",
                             "--optimizer.lr",
                             "0.01",
                             "--seed",
                             "3"});
    return run(more);
  };
  const Result adapters =
      train("finetune", {"--out_dir", folder_ / "lora", "--quantize", "bnb.nf4",
                         "--lora_target_modules", "q_proj,v_proj,fc1,gate_proj"});
  ASSERT_EQ(adapters.exit_code, 0) << adapters.output;
  const Result whole = train("finetune_full", {"--out_dir", folder_ / "full"});
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  for (const char* out : {"lora", "full"}) {
    const json figures = json::parse(read_file(folder_ / out / "run.json"));
    EXPECT_LT(figures["steps"].back()["loss"].get<double>(),
              0.8 * figures["steps"].front()["loss"].get<double>())
        << out;
    EXPECT_EQ(figures["memory"]["predicted"]["peak_allocated"],
              figures["memory"]["measured"]["peak_allocated"])
        << out;
    EXPECT_NE(read_file(folder_ / out / "final/prompt_style.json").find("chat"), std::string::npos);
    const Result told = run({"caption", folder_ / out / "final", photos_ / "a.png", "--prompt",
                             "What is this?", "--precision", "32-true"});
    EXPECT_EQ(told.exit_code, 0) << told.output;
  }
  // PEFT finds a part by its own name.
  const Result parts = train("finetune", {"--out_dir", folder_ / "parts", "--lora_target_modules",
                                          "q_proj", "--model.train_parts", "projection"});
  ASSERT_EQ(parts.exit_code, 0) << parts.output;
  const json adapter = json::parse(read_file(folder_ / "parts/final/adapter_config.json"));
  EXPECT_EQ(adapter["modules_to_save"], json::array({"connector"}));
  // Asked as in training, by the model's chat template.
  const auto loss = [&](const Words& more) {
    Words words{"evaluate",    model,           "--data", "ImageFolder", "--data.path",
                photos_,       "--data.prompt", "What?",  "--captions",  "false",
                "--precision", "32-true",       "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return json::parse(result.output.substr(result.output.find('{')))["loss"].get<double>();
  };
  EXPECT_EQ(loss({}), loss({"--data.prompt_style", "chat"}));
  EXPECT_NE(loss({}), loss({"--data.prompt_style", "plain"}));
}

}  // namespace
}  // namespace snug::tests
