// SPDX-License-Identifier: Apache-2.0
#include "lab/run/row_work.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "support/temp_folder.h"

namespace snug::lab {
namespace {

using Words = std::vector<std::string>;

Words planned(const Words& options) {
  Words words{"plan", "--model.config", SNUG_SOURCE_DIR "/recipes/models/tiny-llama.json"};
  words.insert(words.end(), options.begin(), options.end());
  return words;
}

// What the plan is for: "" where the words name no device.
std::string device_of(const Words& words) {
  const auto at = std::ranges::find(words, "--device");
  return at == words.end() ? "" : *(at + 1);
}

std::string device_here(const Words& options, const std::string& gpu) {
  return device_of(on_this_machine(planned(options), gpu));
}

TEST(OnThisMachine, ARunIsPlannedForTheGpuThatItTakes) {
  EXPECT_EQ(device_here({}, "a100-80"), "a100-80");
  EXPECT_EQ(device_here({}, ""), "") << "a machine without one";
  EXPECT_EQ(device_here({"--accelerator", "cuda"}, "a100-80"), "a100-80");
  EXPECT_EQ(device_here({"--accelerator", "cpu"}, "a100-80"), "");
  EXPECT_EQ(device_here({"--accelerator=cpu"}, "a100-80"), "");
}

// The host's part of a run on a GPU is no run on the processor.
TEST(OnThisMachine, OtherOptionsThatSayCpuDoNotDecide) {
  EXPECT_EQ(device_here({"--optimizer_offload", "cpu"}, "a100-80"), "a100-80");
  EXPECT_EQ(device_here({"--optimizer_offload", "cpu", "--weight_streaming", "true"}, "h100-94"),
            "h100-94");
}

TEST(OnThisMachine, ARecipesOwnWordCounts) {
  const test::TempFolder folder;
  write_file_atomically(folder / "recipe.yaml", "accelerator: cpu\n");
  EXPECT_EQ(device_here({"--config", (folder / "recipe.yaml").string()}, "a100-80"), "");
}

TEST(ReadSettings, WantsAKeyAndAValue) {
  EXPECT_EQ(read_settings({"train.max_steps=2", "--data=a=b"}),
            (Settings{{"train.max_steps", "2"}, {"data", "a=b"}}));
  EXPECT_THROW(read_settings({"train.max_steps"}), UserError);
  EXPECT_THROW(read_settings({"=2"}), UserError);
}

}  // namespace
}  // namespace snug::lab
