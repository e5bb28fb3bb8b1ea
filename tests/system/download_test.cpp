// snug download against a local hub (tests/support/fake_hub.py).
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "support/fake_hub.h"
#include "system/program.h"

namespace snug::tests {
namespace {

using Words = std::vector<std::string>;

Words download_words(const test::FakeHub& hub, const fs::path& folder, const Words& more) {
  Words words{"download", "--endpoint", hub.endpoint(), "--data_dir", folder.string()};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(Download, ADataSetTellsItsLicenceAndHowItIsUsed) {
  const TempFolder folder;
  const test::FakeHub hub;
  const fs::path there = folder / "org/card";
  const Result result = run(download_words(hub, folder.path(), {"--data", "org/card"}));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  for (const std::string& words :
       {"2 files in " + there.string(), std::string("Licence: cc-by-4.0, mit, says its README.md"),
        "--data HFDataset --data.path " + there.string()})
    EXPECT_NE(result.output.find(words), result.output.npos) << words << "\n" << result.output;
  EXPECT_EQ(fs::file_size(there / "data/train-00000.parquet"), 2000U);
}

TEST(Download, ADataSetWithoutALicenceSaysSo) {
  const TempFolder folder;
  const test::FakeHub hub;
  const Result result = run(download_words(hub, folder.path(), {"--data", "org/data"}));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("names none"), result.output.npos) << result.output;
}

TEST(Download, WantsOneRepository) {
  const TempFolder folder;
  const test::FakeHub hub;
  for (const Words& more : {Words{}, Words{"org/good", "--data", "org/data"}}) {
    const Result result = run(download_words(hub, folder.path(), more));
    EXPECT_EQ(result.exit_code, 2) << result.output;
    EXPECT_NE(result.output.find("snug download --data ORG/NAME"), result.output.npos)
        << result.output;
  }
}

}  // namespace
}  // namespace snug::tests
