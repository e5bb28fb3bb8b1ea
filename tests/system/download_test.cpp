// snug download against a local hub (tests/support/fake_hub.py).
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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

namespace hub_data {

constexpr const char* kNoHub = "http://127.0.0.1:9";
const std::string kTrain = "finetune_full " + tiny_checkpoint() + " --model.config " +
                           tiny_checkpoint() +
                           "/config.json --precision 32-true --train.global_batch_size 2 "
                           "--train.micro_batch_size 2 --out_dir out";

// In a folder of its own, to which sets of the hub are fetched.
Result in(const TempFolder& folder, const std::string& endpoint, const std::string& words) {
  return run_in_shell("cd '" + folder.path().string() + "' && HF_ENDPOINT=" + endpoint +
                      " exec snug " + words);
}

void expect_all(const Result& result, int exit_code, const Words& parts) {
  EXPECT_EQ(result.exit_code, exit_code) << result.output;
  for (const std::string& part : parts)
    EXPECT_NE(result.output.find(part), std::string::npos) << part << "\n" << result.output;
}

TEST(HubData, IsFetchedWhereItIsNamed) {
  const TempFolder folder;
  const test::FakeHub hub;
  const std::string show = "data show org/words --model " + tiny_checkpoint();
  expect_all(in(folder, hub.endpoint(), show), 0,
             {"org/words: fetched to data/org/words; licence: mit", "one"});
  const fs::path there = folder / "data/org/words";
  EXPECT_TRUE(fs::exists(there / "en/train-2.jsonl"));
  for (const char* other : {"en/test.jsonl", "fr/all.jsonl", "pictures/1.png"})
    EXPECT_FALSE(fs::exists(there / other)) << other << " was not asked for";
  // From then on nobody is asked.
  const Result again = in(folder, kNoHub, show);
  expect_all(again, 0, {"two"});
  EXPECT_EQ(again.output.find("fetched"), std::string::npos) << again.output;
  // Another split and subset are fetched when they are named.
  expect_all(in(folder, hub.endpoint(), show + " --data.split test"), 0, {"fetched", "three"});
  expect_all(in(folder, hub.endpoint(), show + " --data.subset fr"), 0, {"fetched", "un"});
  expect_all(in(folder, kNoHub, show + " --data.subset de"), 2, {"there are en, fr"});
  expect_all(in(folder, kNoHub, show + " --data.split held"), 2, {"splits of en: train, test"});
  EXPECT_FALSE(fs::exists(folder / "data/org/words.lock"));
}

// Nor where no README says which files there are.
TEST(HubData, WithoutACardIsAskedForOnce) {
  const TempFolder folder;
  const test::FakeHub hub;
  const std::string show = "data show org/bare --model " + tiny_checkpoint();
  expect_all(in(folder, hub.endpoint(), show), 0, {"its README.md names none", "bare"});
  const Result again = in(folder, kNoHub, show);
  expect_all(again, 0, {"bare"});
  EXPECT_EQ(again.output.find("warning"), std::string::npos) << again.output;
  // What cannot be fetched leaves nothing behind.
  EXPECT_EQ(in(folder, kNoHub, "data show other-org/x --model " + tiny_checkpoint()).exit_code, 2);
  EXPECT_FALSE(fs::exists(folder / "data/other-org"));
}

TEST(HubData, TrainsAndValidatesOnItsSplits) {
  const TempFolder folder;
  const test::FakeHub hub;
  expect_all(in(folder, hub.endpoint(),
                kTrain + " --data org/words --data.val_split test --train.max_steps 1"),
             0, {"licence: mit", "Validation Loss"});
  const nlohmann::json record = read_run(folder / "out");
  EXPECT_EQ(record["recipe"]["data"]["path"], "org/words");
  expect_all(in(folder, kNoHub, "evaluate out/final --data org/words --data.split test"), 0,
             {"1 sample"});
}

TEST(HubData, WithoutANetworkSaysWhatToFetchWhere) {
  const TempFolder folder;
  const Words parts{"snug download --data some-org/words", "data/some-org/words", kNoHub};
  expect_all(in(folder, kNoHub, kTrain + " --data some-org/words"), 2, parts);
  // A plan asks for no rows.
  expect_all(in(folder, kNoHub,
                "plan " + tiny_checkpoint() + " --model.config " + tiny_checkpoint() +
                    "/config.json --data some-org/words"),
             0, {"the rows of some-org/words are not here", "snug download --data some-org/words"});
  // A file of that name is a file.
  expect_all(in(folder, kNoHub, kTrain + " --data a/b.jsonl"), 2, {"a/b.jsonl does not exist"});
}

// A folder that somebody brought needs no hub.
TEST(HubData, CopiedFoldersAreTakenAsTheyAre) {
  const TempFolder folder;
  fs::create_directories(folder / "data/some-org/words");
  write_file_atomically(folder / "data/some-org/words/train.csv", "question,answer\nWhich?,one\n");
  expect_all(in(folder, kNoHub, "data show some-org/words --model " + tiny_checkpoint()), 0,
             {"one"});
}

}  // namespace hub_data
}  // namespace
}  // namespace snug::tests
