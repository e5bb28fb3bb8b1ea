// One flipped bit in what a run wrote is named: by snug verify, by a resumed run, by whoever loads
// the model.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "system/program.h"

namespace snug::tests {
namespace {

using testing::HasSubstr;
using testing::Not;

void flip_bit(const fs::path& file, size_t byte) {
  std::string text = read_file(file);
  text.at(byte) = static_cast<char>(text[byte] ^ 1);
  std::ofstream(file, std::ios::binary) << text;
}

class Verify : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(train("3").exit_code, 0); }
  Result train(const std::string& steps) const {
    return run(finetune_words(
        write_rows(folder_ / "rows.jsonl", 64), out(),
        {"--train.max_steps", steps, "--train.save_interval", "1", "--resume", "auto"}));
  }
  fs::path out() const { return folder_ / "out"; }
  static size_t middle(const fs::path& file) { return fs::file_size(file) / 2; }

  const TempFolder folder_;
};

TEST_F(Verify, NamesTheFileAndTheTensor) {
  const Result whole = run({"verify", out()});
  EXPECT_EQ(whole.exit_code, 0) << whole.output;
  EXPECT_THAT(whole.output, HasSubstr("final/model.safetensors"));
  EXPECT_THAT(whole.output, HasSubstr("step-000002/optimizer.safetensors"));
  EXPECT_THAT(whole.output, Not(HasSubstr("DAMAGED")));
  const fs::path model = out() / "final/model.safetensors";
  flip_bit(model, middle(model));
  fs::remove(out() / "final/config.json");
  const Result damaged = run({"verify", out()});
  EXPECT_EQ(damaged.exit_code, 2);
  EXPECT_THAT(damaged.output,
              HasSubstr("final/model.safetensors is damaged within the bytes 0 to"));
  EXPECT_THAT(damaged.output, HasSubstr("more tensors"));
  EXPECT_THAT(damaged.output, HasSubstr("final/config.json is missing"));
  EXPECT_THAT(damaged.output, HasSubstr("2 of "));
}

TEST_F(Verify, AResumedRunPassesOverADamagedStateAndRefusesDamagedTensors) {
  const fs::path newest = out() / "step-000003";
  ASSERT_TRUE(fs::exists(newest));
  // A digit of the step: valid JSON, another meaning.
  const fs::path state = newest / "state.json";
  flip_bit(state, read_file(state).find("\"tokens\": ") + 10);
  const Result passed = train("4");
  EXPECT_EQ(passed.exit_code, 0) << passed.output;
  EXPECT_THAT(passed.output, HasSubstr("state.json is damaged"));
  EXPECT_THAT(passed.output, HasSubstr("step-000002"));
  const fs::path tensors = out() / "step-000004/optimizer.safetensors";
  flip_bit(tensors, fs::file_size(tensors) - 3);
  const Result refused = train("5");
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("is not as it was written"));
}

TEST_F(Verify, LoadingTellsOfDamage) {
  const fs::path model = out() / "final/model.safetensors";
  const std::vector<std::string> generate = {"generate", out() / "final",    "--prompt",
                                             "a",        "--max_new_tokens", "2"};
  const fs::path config = out() / "final/generation_config.json";
  std::ofstream(config, std::ios::app) << "\n";
  const Result edited = run(generate);
  EXPECT_EQ(edited.exit_code, 0) << edited.output;
  EXPECT_THAT(edited.output, HasSubstr("generation_config.json has"));
  flip_bit(model, middle(model));
  const Result damaged = run(generate);
  EXPECT_EQ(damaged.exit_code, 2) << damaged.output;
  EXPECT_THAT(damaged.output, HasSubstr("snug verify"));
}

TEST_F(Verify, SaysWhereNothingHasChecksums) {
  const TempFolder empty;
  const Result none = run({"verify", empty.path()});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.output, HasSubstr("files from elsewhere have none"));
  EXPECT_EQ(run({"verify", folder_ / "nowhere"}).exit_code, 2);
}

}  // namespace
}  // namespace snug::tests
