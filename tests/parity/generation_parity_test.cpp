// Generated token ids against transformers' generate(), for greedy choice and beam search, many
// sequences side by side and one alone (tests/oracles/generation.py).
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "engine/engine.h"
#include "files/weights/safetensors/safetensors.h"
#include "models/family.h"
#include "parity/parity_support.h"
#include "support/source_dir.h"
#include "support/test_device.h"
#include "use/generate/generate_ids.h"

namespace snug {
namespace {

namespace fs = std::filesystem;
using use::EarlyStopping;
using use::GenerationOptions;
using use::Prompt;

GenerationOptions options_of(const nlohmann::json& fields, const nlohmann::json& end_ids) {
  GenerationOptions options{
      .max_new_tokens = 16,
      .sampling = {.temperature = 0},
      .num_beams = fields.value("num_beams", 1),
      .length_penalty = fields.value("length_penalty", 1.0),
      .rules = {.repetition_penalty = fields.value("repetition_penalty", 1.0),
                .no_repeat_ngram_size = fields.value("no_repeat_ngram_size", 0),
                .min_new_tokens = fields.value("min_new_tokens", 0)},
      .end_ids = end_ids.get<std::vector<int32_t>>()};
  if (fields.contains("early_stopping"))
    options.early_stopping =
        fields["early_stopping"] == true ? EarlyStopping::Yes : EarlyStopping::Never;
  return options;
}

// The model reads as many pictures as there are prompts; none without a "pixels".
std::vector<Prompt> prompts_of(const nlohmann::json& rows, const files::TensorSource& expected) {
  std::vector<Prompt> prompts;
  for (const auto& row : rows) prompts.push_back({.ids = row.get<std::vector<int32_t>>()});
  const files::TensorInfo* info = expected.find("pixels");
  if (info == nullptr) return prompts;
  std::vector<uint8_t> pixels(static_cast<size_t>(info->num_elements()));
  expected.read(*info, info->dtype, pixels.data());
  const size_t each = pixels.size() / static_cast<size_t>(info->shape[0]);
  for (size_t i = 0; i < prompts.size(); ++i)
    prompts[i].picture.assign(pixels.begin() + static_cast<std::ptrdiff_t>(i * each),
                              pixels.begin() + static_cast<std::ptrdiff_t>((i + 1) * each));
  return prompts;
}

class GenerationParity : public ::testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }
};

TEST_P(GenerationParity, GivesTheSameIds) {
  if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
  const fs::path folder = tests::source_dir() / "tests/data/parity" / GetParam();
  const nlohmann::json expected = nlohmann::json::parse(read_file(folder / "generation.json"));
  models::Checkpoint checkpoint = models::open_checkpoint(folder);
  recipe::Recipe recipe;
  recipe.precision = "32-true";
  const auto engine = engine::make_engine(*checkpoint.model, recipe, tests::test_device(), 128);
  models::load_weights(checkpoint);
  const auto others = files::open_safetensors(folder / "expected.safetensors");
  const std::vector<Prompt> prompts = prompts_of(expected["prompts"], *others);
  use::ModelLogits model(*engine->executor, *checkpoint.model, at::kFloat);
  for (const auto& example : expected["cases"]) {
    const GenerationOptions options = options_of(example["options"], expected["end_ids"]);
    const auto together = use::generate_ids(model, prompts, options);
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto ids = example["ids"][i].get<std::vector<int32_t>>();
      EXPECT_EQ(together[i].ids, ids) << "sequence " << i << " with " << example["options"];
      EXPECT_EQ(together[i].ended, std::ssize(ids) < options.max_new_tokens);
      const auto alone = use::generate_ids(model, {&prompts[i], 1}, options);
      EXPECT_EQ(alone[0].ids, ids) << "sequence " << i << " alone with " << example["options"];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GenerationParity,
                         ::testing::Values("llama", "mistral", "gpt2", "opt", "t5", "blip2-opt",
                                           "blip2-t5"));

}  // namespace
}  // namespace snug
