// Damaged and hostile files and texts: one clear error that names the file, never a crash or a
// hang.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "gguf_sample.h"
#include "mixed_text.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::tokenizer::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Hostile : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    path_ = fs::path(testing::TempDir()) / (std::string("snug_hostile_") + info->name());
    fs::remove_all(path_);
    fs::create_directories(path_);
    good_ = json::parse(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2},
                            "merges": ["a b"]}, "added_tokens": []})");
  }
  void TearDown() override { fs::remove_all(path_); }

  std::unique_ptr<Tokenizer> load(const std::string& text,
                                  const std::string& name = "tokenizer.json") {
    write_file_atomically(path_ / name, text);
    return Tokenizer::from_directory(path_);
  }
  // The error names the file and says `part`.
  void expect_refused(const std::string& text, const std::string& part,
                      const std::string& name = "tokenizer.json") {
    try {
      load(text, name);
      ADD_FAILURE() << "accepted: " << text.substr(0, 200);
    } catch (const UserError& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find(name), std::string::npos) << message;
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
  }
  void expect_refused_with(const std::string& pointer, const json& value, const std::string& part) {
    json bad = good_;
    bad[json::json_pointer(pointer)] = value;
    expect_refused(bad.dump(), part);
  }

  fs::path path_;
  json good_;
};

TEST_F(Hostile, TheGoodFileLoads) { EXPECT_EQ(load(good_.dump())->encode("ab", false)[0], 2); }

TEST_F(Hostile, BrokenJson) {
  expect_refused("", "not valid JSON");
  expect_refused("{", "not valid JSON");
  expect_refused("[]", "expected an object");
  expect_refused("{}", "'model' is missing");
  expect_refused("{\"a\": \"\xFF\xFE\"}", "not valid JSON");
  expect_refused(std::string(100000, '['), "nested");
  const std::string whole = good_.dump();
  for (size_t cut = 1; cut < whole.size(); ++cut)
    expect_refused(whole.substr(0, cut), "not valid JSON");
}

TEST_F(Hostile, WrongTypesEverywhere) {
  for (const char* key : {"/model", "/model/vocab", "/model/merges", "/model/type", "/added_tokens",
                          "/normalizer", "/pre_tokenizer", "/decoder", "/post_processor"}) {
    for (const json& value :
         {json(7), json("x"), json(true), json::array({1, {2}}), json{{"x", 1}}}) {
      if (std::string(key) == "/model/vocab" && value.is_object()) continue;
      json bad = good_;
      bad[json::json_pointer(key)] = value;
      expect_refused(bad.dump(), "tokenizer.json");
    }
  }
}

TEST_F(Hostile, IdsAndMergesThatDoNotFit) {
  expect_refused_with("/model/vocab/b", 0, "every token needs its own");
  expect_refused_with("/model/vocab/b", -1, "token id");
  expect_refused_with("/model/vocab/b", 1ull << 40, "token id");
  expect_refused_with("/model/vocab/b", 18446744073709551615ull, "number");
  expect_refused_with("/model/vocab/b", 1.5, "whole number");
  expect_refused_with("/model/merges", {"a c"}, "names 'c'");
  expect_refused_with("/model/merges", {"b a"}, "names 'ba'");
  expect_refused_with("/model/merges", {"ab"}, "two tokens");
  expect_refused_with("/model/merges", {"a b c"}, "two tokens");
  expect_refused_with("/model/merges", json::array({json::array({"a"})}), "a pair");
  expect_refused_with("/model/unk_token", "<unk>", "model.vocab");
  expect_refused_with("/added_tokens", json::array({{{"id", 1}, {"content", "x"}}}), "every token");
  expect_refused_with("/added_tokens", json::array({{{"id", 1}}}), "'content' is missing");
  expect_refused_with("/added_tokens",
                      json::array({{{"id", 9}, {"content", std::string(10000, 'x')}}}), "at most");
}

TEST_F(Hostile, UnknownPartsAreNamed) {
  const json unknown = {{"type", "NoSuchThing"}};
  for (const char* part :
       {"/normalizer", "/pre_tokenizer", "/decoder", "/post_processor", "/model"}) {
    expect_refused_with(part, unknown, "NoSuchThing");
  }
}

TEST_F(Hostile, SequencesNestedWithoutEnd) {
  json normalizer = {{"type", "NFC"}}, pre_tokenizer = {{"type", "Digits"}},
       decoder = {{"type", "Fuse"}};
  for (int i = 0; i < 60; ++i) {
    normalizer = {{"type", "Sequence"}, {"normalizers", {normalizer}}};
    pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", {pre_tokenizer}}};
    decoder = {{"type", "Sequence"}, {"decoders", {decoder}}};
  }
  expect_refused_with("/normalizer", normalizer, "nested");
  expect_refused_with("/pre_tokenizer", pre_tokenizer, "nested");
  expect_refused_with("/decoder", decoder, "nested");
}

json split_by(const std::string& pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

TEST_F(Hostile, RegularExpressions) {
  expect_refused_with("/pre_tokenizer", split_by("(a"), "regular expression");
  expect_refused_with("/pre_tokenizer", split_by("[a[b]]"), "not supported");
  expect_refused_with("/pre_tokenizer", split_by("[a&&b]"), "not supported");
  expect_refused_with("/pre_tokenizer", split_by(std::string(100000, 'a')), "at most");
  expect_refused_with("/normalizer",
                      {{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", "x"}},
                      "not empty");
}

TEST_F(Hostile, ACatastrophicPatternEndsInAnError) {
  good_["pre_tokenizer"] = split_by("(a+)+$");
  const auto tokenizer = load(good_.dump());
  try {
    tokenizer->encode(std::string(5000, 'a') + "b", false);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("tokenizer.json"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("(a+)+$"), std::string::npos) << error.what();
  }
}

// Six steps of a thousand letters for one would be 10^18 of them.
TEST_F(Hostile, ReplacementsThatGrowWithoutEndAreRefused) {
  const json grow{
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1000, 'a')}};
  good_["normalizer"] = {{"type", "Sequence"}, {"normalizers", json(6, grow)}};
  const auto tokenizer = load(good_.dump());
  try {
    tokenizer->encode("a", false);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("replacing makes more than 64 MiB"), std::string::npos)
        << error.what();
  }
}

TEST_F(Hostile, APatternThatMatchesNothingDoesNotHang) {
  good_["pre_tokenizer"] = split_by("x*");
  EXPECT_EQ(load(good_.dump())->encode("ab", false).size(), 1u);
}

TEST_F(Hostile, FilesBesideTheVocabulary) {
  load(good_.dump());
  expect_refused("{", "not valid JSON", "tokenizer_config.json");
  expect_refused(R"({"bos_token": 3})", "expected a string", "tokenizer_config.json");
  expect_refused(R"({"added_tokens_decoder": {"x": {"content": "y"}}})", "not a token id",
                 "tokenizer_config.json");
  expect_refused(R"({"chat_template": "{% if %}"})", "line 1", "tokenizer_config.json");
  fs::remove(path_ / "tokenizer_config.json");
  expect_refused(R"({"eos_token_id": -5})", "token id", "generation_config.json");
}

TEST_F(Hostile, SentencepieceModels) {
  const std::string whole = read_file(data_path("sentencepiece/tokenizer.model"));
  expect_refused("", "not a sentencepiece model", "tokenizer.model");
  expect_refused("not a model", "not a sentencepiece model", "tokenizer.model");
  // A piece that is a zero byte: the library's trie takes it for no piece, and throws.
  const std::string zero_piece(
      "\n\x0e\n\n\x0e\n\x05\xf1\x8b\x90\0\0\0\0\x18\x02\n\x08\n\x01\0\x15~dt\x15", 26);
  expect_refused(zero_piece, "not a sentencepiece model", "tokenizer.model");
  fs::remove(path_ / "tokenizer.model");
  expect_refused(zero_piece, "not a sentencepiece model", "spiece.model");
  fs::remove(path_ / "spiece.model");
  for (size_t cut = 1; cut < whole.size(); cut += whole.size() / 40) {
    try {  // a cut between two pieces is a smaller model
      load(whole.substr(0, cut), "tokenizer.model")->encode("some text", true);
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("tokenizer.model"), std::string::npos);
    }
  }
}

TEST_F(Hostile, CharacterMaps) {
  const auto map = [](const std::string& base64) {
    return json{{"type", "Precompiled"}, {"precompiled_charsmap", base64}};
  };
  expect_refused_with("/normalizer", map("!!!!"), "base64");
  expect_refused_with("/normalizer", map("AA=="), "damaged");
  expect_refused_with("/normalizer", map("//////8="), "damaged");
  // A trie whose units point everywhere: looked up without leaving it.
  good_["normalizer"] = map("CAAAAP////8B////AAECAw==");
  EXPECT_EQ(load(good_.dump())->encode("ab", false).size(), 1u);
}

void expect_refused_gguf(void (*damage)(GgufVocabulary&), const std::string& part) {
  GgufVocabulary v = smollm_vocabulary();
  damage(v);
  try {
    Tokenizer::from_gguf(std::move(v));
    ADD_FAILURE() << "accepted; expected: " << part;
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("GGUF"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(HostileGguf, DamagedVocabularies) {
  using V = GgufVocabulary&;
  expect_refused_gguf([](V v) { v.tokens.clear(); }, "no vocabulary");
  expect_refused_gguf([](V v) { v.tokens[5] = v.tokens[6]; }, "has the ids 5 and 6");
  expect_refused_gguf([](V v) { v.tokens[5] = "\xFF"; }, "not UTF-8");
  expect_refused_gguf([](V v) { v.token_types.pop_back(); }, "token_type");
  expect_refused_gguf([](V v) { v.merges[3] = "no such"; }, "merge");
  expect_refused_gguf([](V v) { v.merges[3] = "nospace"; }, "two tokens");
  expect_refused_gguf([](V v) { v.special.eos = 1 << 30; }, "eos_token_id");
  expect_refused_gguf([](V v) { v.model = "bert"; }, "'bert'");
  expect_refused_gguf([](V v) { v.model = "llama"; }, "scores");
  expect_refused_gguf([](V v) { v.scores.assign(v.tokens.size(), NAN); }, "scores");
  expect_refused_gguf([](V v) { v.chat_template = "{% for"; }, "chat_template");
}

TEST(HostileText, InvalidUtf8IsReadAsPythonReplacesIt) {
  const auto tokenizer = Tokenizer::from_gguf(smollm_vocabulary());
  const std::string mark = "\xEF\xBF\xBD";
  const std::pair<std::string, std::string> cases[] = {
      {"a\xFF"
       "b",
       "a" + mark + "b"},
      {"\xE2\x82", mark},
      {"\xE2\x82"
       "x",
       mark + "x"},
      {"\xF0\x9F\x98", mark},
      {"\xC0\xAF", mark + mark},
      {"\xE0\x80\x80", mark + mark + mark},
      {"\xED\xA0\x80", mark + mark + mark},
      {"\xF4\x90\x80\x80", mark + mark + mark + mark},
      {"\xF0\x9F\xF0\x9F\x98\x80", mark + "\xF0\x9F\x98\x80"},
      {"\x80\x80", mark + mark},
  };
  for (const auto& [broken, repaired] : cases) {
    EXPECT_EQ(tokenizer->encode(broken, true), tokenizer->encode(repaired, true)) << repaired;
  }
}

TEST(HostileText, RandomBytesAndRandomIds) {
  SplitMix random(17);
  for (const char* kind : {"gpt2", "llama3", "qwen2", "llama2", "mistral", "t5", "zoo", "word_ends",
                           "sentencepiece"}) {
    const auto tokenizer = Tokenizer::from_directory(data_path(kind));
    for (int round = 0; round < 30; ++round) {
      std::string bytes;
      for (uint64_t i = random.below(200); i > 0; --i)
        bytes += static_cast<char>(random.below(256));
      const auto ids = tokenizer->encode(bytes, true);
      for (const int32_t id : ids) EXPECT_LT(id, tokenizer->vocabulary_size());
      std::vector<int32_t> any;
      for (int i = 0; i < 50; ++i) any.push_back(static_cast<int32_t>(random.below(1ull << 32)));
      for (int i = 0; i < 50; ++i)
        any.push_back(static_cast<int32_t>(random.below(tokenizer->vocabulary_size())));
      EXPECT_EQ(find_invalid_utf8(tokenizer->decode(any, false)), std::string::npos);
    }
  }
}

// Quadratic work on these would take hours.
TEST(HostileText, AMegabyteWithoutSpaces) {
  const std::string texts[] = {std::string(1 << 20, 'a'), std::string(1 << 20, ' '),
                               std::string(1 << 20, '\n'), std::string(1 << 20, '7'),
                               std::string(1 << 20, '\0')};
  for (const char* kind : {"llama3", "llama2", "t5", "gpt2"}) {
    const auto tokenizer = Tokenizer::from_directory(data_path(kind));
    for (const auto& text : texts) {
      const auto start = std::chrono::steady_clock::now();
      EXPECT_FALSE(tokenizer->encode(text, true).empty());
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      EXPECT_LT(seconds.count(), 60) << kind << " on " << static_cast<int>(text[0]);
    }
  }
}

}  // namespace
}  // namespace snug::tokenizer::test
