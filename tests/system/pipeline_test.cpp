// Runs of a pipeline's stages: what they train, validate, answer and write is what one process
// does.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

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
  const size_t begin = output.find("Held-out questions");
  const size_t last = output.rfind("  after     ");
  if (begin == output.npos || last == output.npos) return output;
  return output.substr(begin, output.find('\n', last) - begin);
}

struct Kind {
  const char* name;
  const char* command;
  const char* written;  // under final/
  Words options;
};

class Pipeline : public testing::TestWithParam<Kind> {};

TEST_P(Pipeline, IsWhatOneProcessIs) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun here (Debian: openmpi-bin)";
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 64);
  const auto run_on = [&](const std::string& out, const Words& devices) {
    Words words = finetune_words(
        rows, folder / out,
        {"--train.micro_batch_size", "2", "--train.epochs", "2", "--data.val_split_fraction",
         "0.25", "--eval.num_samples", "2", "--eval.max_new_tokens", "8"});
    words.front() = GetParam().command;
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
                                               "cpu", "--optimizer.master_weights", "true"}}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace snug::tests
