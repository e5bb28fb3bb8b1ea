// SPDX-License-Identifier: Apache-2.0
#include "files/hub/hub_name.h"

#include <gtest/gtest.h>

#include "support/temp_folder.h"

namespace snug::hub {
namespace {

TEST(HubName, IsThatOfADownloadOrOfNoFolder) {
  EXPECT_EQ(hub_name("checkpoints/Qwen/Qwen3-8B"), "Qwen/Qwen3-8B");
  EXPECT_EQ(hub_name("/data/checkpoints/Qwen/Qwen3-8B"), "Qwen/Qwen3-8B");
  EXPECT_EQ(hub_name("Qwen/Qwen3-8B"), "Qwen/Qwen3-8B");
  for (const char* path : {"qwen3-8b", "out/run", "./models/x", "../models/x", "/models/x",
                           "models/a/b", "models/x.gguf", "recipes/x.yaml", "checkpoints/x", ""})
    EXPECT_EQ(hub_name(path), "") << path;
}

TEST(HubName, AFolderThatIsThereIsNoOrganization) {
  const test::TempFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::create_directory(folder / "models");
  std::filesystem::current_path(folder.path());
  EXPECT_EQ(hub_name("models/x"), "");
  EXPECT_EQ(hub_name("model/x"), "model/x");
  std::filesystem::current_path(before);
}

TEST(HubName, AnEmptyFolderIsAbsent) {
  const test::TempFolder folder;
  EXPECT_TRUE(is_absent(folder / "a"));
  std::filesystem::create_directory(folder / "a");
  EXPECT_TRUE(is_absent(folder / "a"));
  std::filesystem::create_directory(folder / "a" / "b");
  EXPECT_FALSE(is_absent(folder / "a"));
}

}  // namespace
}  // namespace snug::hub
