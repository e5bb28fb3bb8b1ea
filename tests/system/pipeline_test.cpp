// Runs of a pipeline's stages: what they train, validate, answer and write is what one process
// does.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>

#include "system/ranks.h"

namespace snug::tests {
namespace {

using Words = std::vector<std::string>;

// The float32 tensors of a safetensors file.
std::map<std::string, std::vector<float>> tensors_of(const fs::path& file) {
  const std::string bytes = read_file(file);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const nlohmann::json header = nlohmann::json::parse(bytes.substr(sizeof length, length));
  std::map<std::string, std::vector<float>> tensors;
  for (const auto& [name, info] : header.items()) {
    if (name == "__metadata__") continue;
    const size_t begin = info["data_offsets"][0], end = info["data_offsets"][1];
    std::vector<float>& values = tensors[name];
    values.resize((end - begin) / sizeof(float));
    std::memcpy(values.data(), bytes.data() + sizeof length + length + begin, end - begin);
  }
  return tensors;
}

void expect_same_file(const fs::path& expected_file, const fs::path& actual_file) {
  const auto expected = tensors_of(expected_file), actual = tensors_of(actual_file);
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, values] : expected) {
    const std::vector<float>& found = actual.at(name);
    ASSERT_EQ(found.size(), values.size()) << name;
    float largest = 1e-3F, difference = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(values[i]));
      difference = std::max(difference, std::abs(values[i] - found[i]));
    }
    EXPECT_LE(difference, 1e-4F * largest) << name;
  }
}

// What was held out, and how it was answered before and after.
std::string answers_of(const std::string& output) {
  const size_t begin = output.find("\nHeld-out ");
  const size_t last = output.rfind("  after     ");
  if (begin == output.npos || last == output.npos) return output;
  return output.substr(begin, output.find('\n', last) - begin);
}

struct Kind {
  const char* name;
  const char* command;
  const char* written;  // under final/
  Words options;
  const char* family = "";  // of tests/data/parity; empty: the tiny Llama
  bool pictures = false;
};

const fs::path kData = fs::path(SNUG_SOURCE_DIR) / "tests/data";

// A model of this family for the tiny tokenizer's words, with random weights.
fs::path make_model(const std::string& family, const fs::path& folder) {
  fs::create_directories(folder);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    fs::copy_file(kData / "system/tiny" / name, folder / name);
  fs::copy_file(kData / "parity/blip2-opt/preprocessor_config.json",
                folder / "preprocessor_config.json");
  nlohmann::json config =
      nlohmann::json::parse(read_file(kData / "parity" / family / "config.json"));
  constexpr int kWords = 304;
  if (config.contains("text_config")) {
    config["text_config"]["vocab_size"] = kWords;
    config["image_token_index"] = kWords - 1;
  } else {
    config["vocab_size"] = kWords;
  }
  std::ofstream(folder / "config.json") << config;
  return folder;
}

// A folder of pictures with a line about each.
fs::path write_pictures(const fs::path& folder, int count) {
  fs::create_directories(folder);
  std::ofstream rows(folder / "metadata.jsonl");
  constexpr std::array<const char*, 3> kPictures = {"rgba.png", "turned2.jpg", "lossy.webp"};
  for (int i = 0; i < count; ++i) {
    const fs::path picture = kData / "pictures" / kPictures[static_cast<size_t>(i) % 3];
    const std::string name = fmt::format("{}{}", i, picture.extension().string());
    fs::copy_file(picture, folder / name);
    rows << nlohmann::json{{"file_name", name}, {"text", std::string(1 + i % 4, 'a' + i % 3)}}
         << "\n";
  }
  return folder;
}

// The command, its model and its data; what else a run is told comes behind.
Words first_words(const Kind& kind, const TempFolder& folder, const fs::path& out) {
  const fs::path rows = folder / "rows.jsonl";
  if (!fs::exists(rows)) write_rows(rows, 64);
  Words words = finetune_words(rows, out);
  words.front() = kind.command;
  if (*kind.family == 0) return words;
  const fs::path model = folder / "model", photos = folder / "photos";
  if (!fs::exists(model)) make_model(kind.family, model);
  std::replace(words.begin(), words.end(), tiny_checkpoint(), model.string());
  std::replace(words.begin(), words.end(), tiny_checkpoint() + "/config.json",
               (model / "config.json").string());
  if (!kind.pictures) return words;
  if (!fs::exists(photos)) write_pictures(photos, 24);
  const auto data = std::find(words.begin(), words.end(), "--data");
  words.erase(data, data + 6);  // with its path and its style
  words.insert(words.end(), {"--data", "ImageFolder", "--data.path", photos});
  return words;
}

class Pipeline : public testing::TestWithParam<Kind> {};

TEST_P(Pipeline, IsWhatOneProcessIs) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun here (Debian: openmpi-bin)";
  const TempFolder folder;
  const auto run_on = [&](const std::string& out, const Words& devices) {
    Words words = first_words(GetParam(), folder, folder / out);
    words.insert(words.end(), {"--train.micro_batch_size", "2", "--train.epochs", "2",
                               "--data.val_split_fraction", "0.25", "--eval.num_samples", "2",
                               "--eval.max_new_tokens", "8"});
    for (const Words& more : {GetParam().options, devices})
      words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return result.output;
  };
  const std::string expected = run_on("one", {});
  const std::string said =
      run_on("stages", {"--devices", "2", "--mesh", "pp=2", "--pipeline_interleave", "2"});
  if (testing::Test::HasFailure()) return;
  EXPECT_NE(answers_of(expected), expected) << "no answers in " << expected;
  EXPECT_EQ(answers_of(said), answers_of(expected));
  const nlohmann::json a = read_run(folder / "one"), b = read_run(folder / "stages");
  ASSERT_EQ(a["steps"].size(), b["steps"].size());
  for (size_t i = 0; i < a["steps"].size(); ++i)
    EXPECT_NEAR(b["steps"][i]["loss"], a["steps"][i]["loss"], 1e-5) << "step " << i + 1;
  ASSERT_EQ(a["validation"].size(), b["validation"].size());
  ASSERT_FALSE(a["validation"].empty());
  for (size_t i = 0; i < a["validation"].size(); ++i) {
    EXPECT_NEAR(b["validation"][i]["loss"], a["validation"][i]["loss"], 1e-5);
    EXPECT_EQ(b["validation"][i]["tokens"], a["validation"][i]["tokens"]);
  }
  for (const auto& rank : b["ranks"])
    EXPECT_LE(rank["peak_allocated"], rank["predicted_allocated"]) << b["ranks"].dump(2);
  expect_same_file(folder / "one/final" / GetParam().written,
                   folder / "stages/final" / GetParam().written);
}

INSTANTIATE_TEST_SUITE_P(All, Pipeline,
                         testing::Values(Kind{"full", "finetune_full", "model.safetensors", {}},
                                         Kind{"lora",
                                              "finetune_lora",
                                              "adapter_model.safetensors",
                                              {"--lora_mlp", "true", "--lora_head", "true"}},
                                         // What is written has the masters' type, on every stage.
                                         Kind{"masters",
                                              "finetune_lora",
                                              "adapter_model.safetensors",
                                              {"--precision", "bf16-true", "--optimizer_offload",
                                               "cpu", "--optimizer.master_weights", "true"}},
                                         // Answers and captions need what an encoder has read.
                                         Kind{"t5", "finetune_full", "model.safetensors", {}, "t5"},
                                         // Biases of keys have no gradient but rounding, of which
                                         // AdamW would make whole steps.
                                         Kind{"captions",
                                              "finetune_full",
                                              "model.safetensors",
                                              {"--optimizer", "SGD", "--optimizer.lr", "0.1"},
                                              "blip2-t5",
                                              /*pictures=*/true}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace snug::tests
