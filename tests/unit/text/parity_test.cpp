// Every kind of tokenizer against Hugging Face's `tokenizers` and sentencepiece, id by id and text
// by text, on the same mixed text; expected.json holds a hash for each line.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/files.h"
#include "gguf_sample.h"
#include "mixed_text.h"
#include "support/temp_folder.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::tokenizer::test {
namespace {

const nlohmann::json& expected() {
  static const nlohmann::json json = read_data("expected.json");
  return json;
}

const std::vector<std::string>& lines() {
  static const auto made = MixedText(expected()["seed"]).lines(expected()["num_lines"]);
  return made;
}

std::string show(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string out;
  for (const int32_t id : ids) out += "[" + tokenizer.id_to_token(id) + "]";
  return out;
}

void expect_same_ids(const Tokenizer& tokenizer, const std::string& hashes) {
  ASSERT_EQ(hashes.size(), lines().size() * 8);
  int num_wrong = 0;
  for (size_t i = 0; i < lines().size(); ++i) {
    const auto ids = tokenizer.encode(lines()[i], true);
    if (hash_ids(ids) == hashes.substr(i * 8, 8)) continue;
    if (++num_wrong <= 3)
      ADD_FAILURE() << "line " << i << ": " << lines()[i] << show(tokenizer, ids);
  }
  EXPECT_EQ(num_wrong, 0);
}

// Decoded texts are hashed twenty lines together.
void expect_same_text(const Tokenizer& tokenizer, const std::string& hashes, bool skip_special) {
  std::string found, group;
  for (size_t i = 0; i < lines().size(); ++i) {
    group += tokenizer.decode(tokenizer.encode(lines()[i], true), skip_special);
    if (i % 20 == 19 || i + 1 == lines().size()) {
      found += hash_text(group);
      group.clear();
    }
  }
  EXPECT_EQ(found, hashes);
}

void expect_parity(const Tokenizer& tokenizer, const std::string& name) {
  const auto& wanted = expected()["tokenizers"][name];
  for (size_t i = 0; i < wanted["first_ids"].size(); ++i) {
    EXPECT_EQ(tokenizer.encode(lines()[i], false),
              wanted["first_ids"][i].get<std::vector<int32_t>>());
  }
  expect_same_ids(tokenizer, wanted["ids"]);
  expect_same_text(tokenizer, wanted["text"], false);
  expect_same_text(tokenizer, wanted["text_without_special"], true);
}

TEST(MixedText, IsTheOraclesText) {
  std::string all;
  for (const auto& line : lines()) all += line;
  EXPECT_EQ(hash_text(all), expected()["text"]);
}

class TokenizerJson : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerJson, EncodesAndDecodesAsTheOracle) {
  expect_parity(*Tokenizer::from_directory(data_path(GetParam())), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerJson,
                         testing::Values("gpt2", "llama3", "o200k", "qwen2", "falcon", "llama2",
                                         "mistral", "t5", "zoo", "word_ends"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Gguf, ByteLevelVocabularyEncodesAsTheOracle) {
  expect_parity(*Tokenizer::from_gguf(smollm_vocabulary()), "smollm");
}

// As Gemma has them: user-defined pieces are runs of spaces, found as sentencepiece does after it
// has escaped spaces. Ids from sentencepiece 0.2 of the same pieces.
TEST(Gguf, UserDefinedPiecesAreFoundAmongEscapedSpaces) {
  GgufVocabulary v;
  v.model = "llama";
  v.add_space_prefix = false;
  v.tokens = {"<unk>", "<bos>", "  ", "   ", "\n"};
  v.token_types = {3, 3, 4, 4, 4};
  v.scores = {0, 0, -1000, -1000, -1000};
  for (int byte = 0; byte < 256; ++byte) {
    char token[8];
    std::snprintf(token, sizeof(token), "<0x%02X>", static_cast<unsigned>(byte));
    v.tokens.emplace_back(token);
  }
  v.token_types.resize(v.tokens.size(), 6);
  for (const char* piece : {"ab", "▁ab", "▁", "a", "b"}) v.tokens.emplace_back(piece);
  v.token_types.resize(v.tokens.size(), 1);
  v.scores.resize(v.tokens.size() - 5, 0);
  for (int score = -1; score >= -5; --score) v.scores.push_back(static_cast<float>(score));
  v.special = {.bos = 1, .unk = 0};
  const auto tokenizer = Tokenizer::from_gguf(v);
  const std::vector<std::pair<std::string, std::vector<int32_t>>> wanted = {
      {"a b", {264, 263, 265}},         {"ab  ab", {261, 2, 261}},
      {"ab    ab", {261, 3, 262}},      {"ab       ab", {261, 3, 3, 262}},
      {"ab ▁ ab", {261, 3, 261}},       {"ab▁▁ab", {261, 2, 261}},
      {" ab\n\n ab", {262, 4, 4, 262}}, {"\n é  ", {4, 263, 200, 174, 2}}};
  for (const auto& [text, ids] : wanted) EXPECT_EQ(tokenizer->encode(text, false), ids) << text;
}

TEST(SentencePiece, LegacyEncodesEachStretchWithAPrefixSpace) {
  const auto tokenizer = Tokenizer::from_directory(data_path("sentencepiece"));
  EXPECT_EQ(tokenizer->special().bos, 1);
  EXPECT_TRUE(tokenizer->special().add_bos);
  expect_same_ids(*tokenizer, expected()["sentencepiece"]["legacy"]);
}

TEST(SentencePiece, WithoutLegacyOnlyTheFirstStretchHasAPrefixSpace) {
  const auto directory = std::filesystem::path(testing::TempDir()) / "not_legacy";
  std::filesystem::create_directories(directory);
  std::filesystem::copy_file(data_path("sentencepiece/tokenizer.model"),
                             directory / "tokenizer.model",
                             std::filesystem::copy_options::overwrite_existing);
  write_file_atomically(directory / "tokenizer_config.json", R"({"legacy": false})");
  expect_same_ids(*Tokenizer::from_directory(directory), expected()["sentencepiece"]["not_legacy"]);
  std::filesystem::remove_all(directory);
}

// A T5 directory with spiece.model alone, as transformers' T5Tokenizer reads it
// (tests/oracles/tokenizer_t5.py).
TEST(SentencePiece, OfT5HasExtraIdsAndEndsTexts) {
  const auto wanted = read_data("t5_spiece/expected.json");
  const auto tokenizer = Tokenizer::from_directory(data_path("t5_spiece"));
  EXPECT_EQ(tokenizer->vocabulary_size(), wanted["size"]);
  EXPECT_EQ(tokenizer->special().pad, 0);
  EXPECT_EQ(tokenizer->special().eos, 1);
  EXPECT_TRUE(tokenizer->special().add_eos);
  EXPECT_EQ(tokenizer->token_to_id("<extra_id_0>"), wanted["size"].get<int32_t>() - 1);
  for (const auto& sample : wanted["samples"]) {
    const auto ids = tokenizer->encode(sample["text"].get<std::string>(), true);
    EXPECT_EQ(ids, sample["ids"].get<std::vector<int32_t>>()) << sample["text"];
    EXPECT_EQ(tokenizer->decode(sample["ids"].get<std::vector<int32_t>>(), false),
              sample["decoded"].get<std::string>());
    EXPECT_EQ(tokenizer->decode(sample["ids"].get<std::vector<int32_t>>(), true),
              sample["without_special"].get<std::string>());
  }
  expect_same_ids(*tokenizer, wanted["ids"]);
}

TEST(SentencePiece, OfT5IsWrittenAsTransformersReadsIt) {
  const snug::test::TempFolder folder;
  const auto tokenizer = Tokenizer::from_directory(data_path("t5_spiece"));
  tokenizer->write_directory(folder / "out");
  const auto config = nlohmann::json::parse(read_file(folder / "out/tokenizer_config.json"));
  EXPECT_EQ(config["tokenizer_class"], "T5Tokenizer");
  EXPECT_EQ(config["extra_ids"], 100);
  const auto again = Tokenizer::from_directory(folder / "out");
  EXPECT_EQ(again->encode("a <extra_id_0>", true), tokenizer->encode("a <extra_id_0>", true));
}

}  // namespace
}  // namespace snug::tokenizer::test
