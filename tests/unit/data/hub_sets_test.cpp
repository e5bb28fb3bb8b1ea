// Data sets as the hub has them: which rows belong to a split, beside what the `datasets` package
// finds (tests/oracles/hub_sets.py), and what their cards say.
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "data/rows/dataset_card.h"
#include "data/rows/hugging_face.h"
#include "data_fixtures.h"
#include "support/source_dir.h"

namespace snug::data {
namespace hub_sets {
namespace {

namespace fs = std::filesystem;

void write_text(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  write_file_atomically(file, text);
}

std::vector<std::string> texts_of(const HuggingFaceOptions& options) {
  std::vector<std::string> texts;
  for (const Row& row : read_hugging_face_rows(options)) texts.push_back(row.output);
  return texts;
}

TEST(HubSets, SplitsHaveTheRowsThatDatasetsFinds) {
  const fs::path file = tests::source_dir() / "tests/data/import/hub_sets.json";
  int refused = 0, compared = 0;
  for (const auto& layout : nlohmann::json::parse(read_file(file))) {
    const test::TempFolder folder;
    for (const auto& [path, text] : layout["files"].items())
      write_text(folder.path() / path, text.get<std::string>());
    HuggingFaceOptions options{.path = folder.path(), .subset = layout["subset"]};
    if (layout["splits"].is_null()) {
      ++refused;
      EXPECT_NE(message_of([&] { texts_of(options); }), "") << layout["files"].dump();
      continue;
    }
    for (const auto& [split, texts] : layout["splits"].items()) {
      ++compared;
      options.split = split;
      EXPECT_EQ(texts_of(options), texts.get<std::vector<std::string>>())
          << split << " of " << layout["files"].dump();
    }
    options.split = "nowhere";
    EXPECT_NE(message_of([&] { texts_of(options); }).find("nowhere"), std::string::npos)
        << layout["files"].dump();
  }
  EXPECT_EQ(refused, 2);
  EXPECT_GT(compared, 20);
}

TEST(HubSets, WhatIsMissingIsSaid) {
  const test::TempFolder folder;
  write_text(
      folder.path() / "README.md",
      "---\nconfigs:\n- config_name: en\n  data_files: en.jsonl\n- config_name: fr\n  data_files: "
      "fr.jsonl\n---\n");
  write_text(folder.path() / "en.jsonl", "{\"text\": \"a\"}\n");
  const auto message = [&](const HuggingFaceOptions& options) {
    return message_of([&] { texts_of(options); });
  };
  const std::string several = message({.path = folder.path()});
  EXPECT_NE(several.find("--data.subset: en, fr"), std::string::npos) << several;
  const std::string unknown = message({.path = folder.path(), .subset = "de"});
  EXPECT_NE(unknown.find("no subset de"), std::string::npos) << unknown;
  const std::string absent = message({.path = folder.path(), .subset = "fr"});
  EXPECT_NE(absent.find("fr.jsonl"), std::string::npos) << absent;
  EXPECT_EQ(texts_of({.path = folder.path(), .subset = "en"}), std::vector<std::string>{"a"});
  const std::string nothing = message({.path = "some-org/some-name"});
  EXPECT_NE(nothing.find("snug download --data some-org/some-name"), std::string::npos) << nothing;
}

TEST(HubSets, CardsThatAreNone) {
  const test::TempFolder folder;
  const fs::path readme = folder.path() / "README.md";
  for (const char* text : {"", "---", "---\n", "no yaml\n---\n", "---\n- a\n- b\n---\n",
                           "---\nconfigs: [1, {a: 2}, [3]]\nlicense: {a: b}\n---\n",
                           "---\nconfigs:\n- data_dir: ../..\n- data_dir: /etc\n---\n",
                           "---\na: &x [*x, *x]\n---\n"}) {
    write_text(readme, text);
    const DatasetCard card = read_dataset_card(readme);
    EXPECT_TRUE(card.configurations.empty()) << text;
  }
  EXPECT_TRUE(read_dataset_card(folder.path() / "absent").configurations.empty());
}

}  // namespace
}  // namespace hub_sets
}  // namespace snug::data
