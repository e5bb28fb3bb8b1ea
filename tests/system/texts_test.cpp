// Texts to read on, as a user trains on them: planned and measured alike, shown, and refused where
// they are no texts.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "system/program.h"

namespace snug::tests {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

class Texts : public ::testing::Test {
 protected:
  Texts() {
    fs::create_directories(folder_ / "texts");
    for (int i = 0; i < 12; ++i) {
      std::ofstream out(folder_ / "texts" / fmt::format("{}.{}", i, i % 2 == 0 ? "txt" : "md"));
      for (int line = 0; line < 1 + 5 * (i % 4); ++line)
        out << fmt::format("line {} of document {}\n", line, i);
    }
  }
  // Every option that finetune_words() gives, but the data.
  Words words(const std::string& name, const Words& more) const {
    Words all = finetune_words("", folder_ / name, {"--train.log_interval", "1"});
    std::erase(all, "--data.json_path");
    std::erase(all, "");
    std::replace(all.begin(), all.end(), std::string("JSON"), std::string("TextFiles"));
    all.insert(all.end(), {"--data.path", (folder_ / "texts").string()});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  const TempFolder folder_;
};

TEST_F(Texts, AreReadInBlocksAsPlanned) {
  const Result result = run(words("run", {"--train.max_seq_length", "64", "--train.epochs", "4"}));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("blocks of 64"), result.output.npos) << result.output;
  const json record = read_run(folder_ / "run");
  EXPECT_LT(record["steps"].back()["loss"], record["steps"].front()["loss"]);
  EXPECT_LE(record["memory"]["measured"]["peak_allocated"],
            record["memory"]["predicted"]["peak_allocated"]);
  // Of what a block may have, documents take 4 bytes each.
  EXPECT_LT(record["memory"]["predicted"]["peak_allocated"].get<int64_t>() -
                record["memory"]["measured"]["peak_allocated"].get<int64_t>(),
            4096);
}

TEST_F(Texts, AreShownWithTheirDocuments) {
  const Result result = run({"data", "show", (folder_ / "texts/1.md").string(), "--model",
                             tiny_checkpoint(), "--train.max_seq_length", "40"});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("ine 0 of document 1\nline 1"), result.output.npos) << result.output;
}

TEST_F(Texts, AreNoAnswers) {
  const Result result = run(words("refused", {"--objective", "dpo"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.output.find("--objective sft"), result.output.npos) << result.output;
}

}  // namespace
}  // namespace snug::tests
