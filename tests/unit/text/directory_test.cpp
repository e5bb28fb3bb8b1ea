// A tokenizer's way into a directory and out of it, and what the small files beside it change.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "gguf_sample.h"
#include "mixed_text.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::tokenizer::test {
namespace {

namespace fs = std::filesystem;

class Directory : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    path_ = fs::path(testing::TempDir()) / (std::string("snug_tokenizer_") + info->name());
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  void TearDown() override { fs::remove_all(path_); }
  void put(const std::string& name, const std::string& text) {
    write_file_atomically(path_ / name, text);
  }
  void put_tokenizer(const std::string& kind) {
    fs::copy_file(data_path(kind + "/tokenizer.json"), path_ / "tokenizer.json");
  }
  std::unique_ptr<Tokenizer> load() { return Tokenizer::from_directory(path_); }

  fs::path path_;
};

void expect_equal(const Tokenizer& a, const Tokenizer& b) {
  EXPECT_EQ(a.vocabulary_size(), b.vocabulary_size());
  EXPECT_EQ(a.special().bos, b.special().bos);
  EXPECT_EQ(a.special().eos, b.special().eos);
  EXPECT_EQ(a.special().pad, b.special().pad);
  EXPECT_EQ(a.special().unk, b.special().unk);
  EXPECT_EQ(a.special().add_bos, b.special().add_bos);
  for (const auto& line : MixedText(3).lines(50)) {
    EXPECT_EQ(a.encode(line, true), b.encode(line, true)) << line;
  }
  ASSERT_EQ(a.has_chat_template(), b.has_chat_template());
  const std::vector<Message> chat = {{"user", "Hi"}};
  if (a.has_chat_template()) {
    EXPECT_EQ(a.apply_chat_template(chat, true), b.apply_chat_template(chat, true));
  }
}

// OPT's checkpoints hold GPT-2's two files alone.
TEST_F(Directory, VocabAndMergesAreATokenizerToo) {
  auto json = nlohmann::json::parse(read_file(data_path("gpt2/tokenizer.json")));
  json["added_tokens"] = nlohmann::json::array();
  put("tokenizer.json", json.dump());
  put("tokenizer_config.json", R"({"add_prefix_space": true})");
  const auto whole = load();
  put("vocab.json", json["model"]["vocab"].dump());
  std::string merges = "#version: 0.2\n";
  for (const auto& rule : json["model"]["merges"])
    merges += (rule.is_string() ? rule.get<std::string>()
                                : rule[0].get<std::string>() + " " + rule[1].get<std::string>()) +
              "\n";
  put("merges.txt", merges);
  fs::remove(path_ / "tokenizer.json");
  const auto halves = load();
  for (const auto& line : MixedText(3).lines(200)) {
    const std::vector<int32_t> ids = halves->encode(line, false);
    EXPECT_EQ(ids, whole->encode(line, false)) << line;
    EXPECT_EQ(halves->decode(ids), whole->decode(ids)) << line;
  }
  put("tokenizer_config.json", "{}");  // GGUF has no prefix of a space
  const auto plain = load();
  const GgufVocabulary vocabulary = plain->gguf_vocabulary(plain->vocabulary_size());
  EXPECT_EQ(vocabulary.pre, "gpt-2");
  const auto from_gguf = Tokenizer::from_gguf(vocabulary);
  for (const auto& line : MixedText(4).lines(50))
    EXPECT_EQ(from_gguf->encode(line, false), plain->encode(line, false)) << line;
  const std::string first = whole->id_to_token(0);
  put("tokenizer_config.json",
      nlohmann::json{{"bos_token", first}, {"eos_token", first}, {"add_bos_token", true}}.dump());
  const auto marked = load();
  EXPECT_TRUE(marked->special().add_bos);
  EXPECT_EQ(marked->encode("Hi", true).front(), 0);
  EXPECT_EQ(marked->special().eos, 0);
  marked->write_directory(path_ / "copy");
  EXPECT_EQ(Tokenizer::from_directory(path_ / "copy")->encode("Hi ho", true),
            marked->encode("Hi ho", true));
}

TEST_F(Directory, AGgufVocabularyWrittenOutIsTheSameTokenizer) {
  const auto tokenizer = Tokenizer::from_gguf(smollm_vocabulary());
  tokenizer->write_directory(path_ / "out");
  expect_equal(*tokenizer, *Tokenizer::from_directory(path_ / "out"));
}

TEST_F(Directory, AProcessorsTemplateIsTheLastChoice) {
  const std::vector<Message> chat{{"user", "a"}};
  put_tokenizer("llama3");
  put("chat_template.json", R"({"chat_template": "processor {{ messages[0].content }}"})");
  EXPECT_EQ(load()->apply_chat_template(chat, false), "processor a");
  put("tokenizer_config.json", R"({"chat_template": "tokenizer {{ messages[0].content }}"})");
  EXPECT_EQ(load()->apply_chat_template(chat, false), "tokenizer a");
}

TEST_F(Directory, WritingCopiesTheSourcesFiles) {
  put_tokenizer("llama3");
  put("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "<|eot_id|>"}})");
  put("chat_template.jinja", "{{ messages[0].content }}{{ eos_token }}\n");
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->apply_chat_template(std::vector<Message>{{"user", "a"}}, false),
            "a<|eot_id|>");
  tokenizer->write_directory(path_ / "out");
  EXPECT_EQ(read_file(path_ / "out/tokenizer.json"), read_file(path_ / "tokenizer.json"));
  expect_equal(*tokenizer, *Tokenizer::from_directory(path_ / "out"));
  tokenizer->write_directory(path_);  // onto itself: nothing is lost
  expect_equal(*tokenizer, *load());
}

TEST_F(Directory, ASentencepieceModelIsCopied) {
  const auto tokenizer = Tokenizer::from_directory(data_path("sentencepiece"));
  tokenizer->write_directory(path_ / "out");
  expect_equal(*tokenizer, *Tokenizer::from_directory(path_ / "out"));
}

// added_tokens.json only names them, whatever tokenizer_config.json says of them.
TEST_F(Directory, WhatOneFileCallsSpecialIs) {
  fs::copy_file(data_path("sentencepiece/tokenizer.model"), path_ / "tokenizer.model");
  const int64_t end = load()->vocabulary_size();
  const auto id = [&](int64_t n) { return std::to_string(end + n); };
  put("tokenizer_config.json", R"({"added_tokens_decoder": {")" + id(0) +
                                   R"(": {"content": "<|a|>", "special": true}, ")" + id(1) +
                                   R"(": {"content": "<|b|>", "special": false}},
          "additional_special_tokens": ["<|c|>"]})");
  put("added_tokens.json",
      R"({"<|a|>": )" + id(0) + R"(, "<|b|>": )" + id(1) + R"(, "<|c|>": )" + id(2) + "}");
  const auto tokenizer = load();
  EXPECT_TRUE(tokenizer->is_special(*tokenizer->token_to_id("<|a|>")));
  EXPECT_FALSE(tokenizer->is_special(*tokenizer->token_to_id("<|b|>")));
  EXPECT_TRUE(tokenizer->is_special(*tokenizer->token_to_id("<|c|>")));
  const std::vector<int32_t> types = tokenizer->gguf_vocabulary(end + 3).token_types;
  EXPECT_EQ(std::vector<int32_t>(types.end() - 3, types.end()), (std::vector<int32_t>{3, 4, 3}));
}

TEST_F(Directory, ConfigDecidesOverBosAndEos) {
  put_tokenizer("llama3");
  const int32_t bos = *load()->token_to_id("<s>");
  EXPECT_EQ(load()->encode("a", true).front(), bos);
  EXPECT_EQ(load()->special().bos, -1);  // no file names it yet
  put("tokenizer_config.json",
      R"({"bos_token": "<s>", "eos_token": "<|eot_id|>", "add_bos_token": false, "add_eos_token": true})");
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->special().bos, bos);
  EXPECT_FALSE(tokenizer->special().add_bos);
  EXPECT_TRUE(tokenizer->special().add_eos);
  EXPECT_EQ(tokenizer->encode("a", true).back(), tokenizer->special().eos);
  EXPECT_EQ(tokenizer->encode("a", true).size(), tokenizer->encode("a", false).size() + 1);
}

TEST_F(Directory, SpecialTokensMapAndGenerationConfigFillWhatIsMissing) {
  put_tokenizer("llama3");
  put("special_tokens_map.json", R"({"bos_token": {"content": "<s>"}})");
  put("generation_config.json", R"({"eos_token_id": [1, 0]})");
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->special().bos, tokenizer->token_to_id("<s>"));
  EXPECT_EQ(tokenizer->special().eos, 1);
}

TEST_F(Directory, NamedTokensAreRecognisedInText) {
  put_tokenizer("mistral");
  put("tokenizer_config.json", R"({"pad_token": "▁the", "added_tokens_decoder":
      {"99999": {"content": "<new>", "special": true}}})");
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->token_to_id("<new>"), 99999);
  EXPECT_EQ(tokenizer->vocabulary_size(), 100000);
  EXPECT_EQ(tokenizer->encode("<new>", false), std::vector<int32_t>{99999});
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{99999}, true), "");
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{99999}, false), "<new>");
}

TEST_F(Directory, OfSeveralChatTemplatesTheDefaultOneIsTaken) {
  put_tokenizer("llama3");
  put("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "t"},
      {"name": "default", "template": "d"}]})");
  EXPECT_EQ(load()->apply_chat_template({}, false), "d");
}

TEST_F(Directory, MissingTemplateIsAnErrorThatSaysSo) {
  put_tokenizer("llama3");
  EXPECT_FALSE(load()->has_chat_template());
  EXPECT_THROW(load()->apply_chat_template({}, true), UserError);
}

TEST_F(Directory, AFolderWithoutATokenizerSaysWhatIsMissing) {
  try {
    load();
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("tokenizer.json"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find(path_.string()), std::string::npos);
  }
}

// GPT-NeoX's splits words as GPT-2's and brings texts to NFC; StableLM 2's is llama.cpp's qwen2.
TEST_F(Directory, GgufNamesHowGptNeoxSplitsWords) {
  nlohmann::json written = read_data("qwen2/tokenizer.json");
  written["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  put("tokenizer.json", written.dump());
  const auto tokenizer = load();
  GgufVocabulary v = tokenizer->gguf_vocabulary(tokenizer->vocabulary_size());
  EXPECT_EQ(v.pre, "olmo");
  const auto read = Tokenizer::from_gguf(v);
  const auto qwen2 = Tokenizer::from_directory(data_path("qwen2"));
  v.pre = "stablelm2";
  const auto stablelm = Tokenizer::from_gguf(v);
  for (const auto& line : MixedText(5).lines(300)) {
    ASSERT_EQ(read->encode(line, true), tokenizer->encode(line, true)) << line;
    ASSERT_EQ(stablelm->encode(line, true), qwen2->encode(line, true)) << line;
  }
}

TEST_F(Directory, GgufNamesHowFalconSplitsWords) {
  put("tokenizer.json", read_data("falcon/tokenizer.json").dump());
  const auto tokenizer = load();
  const GgufVocabulary v = tokenizer->gguf_vocabulary(tokenizer->vocabulary_size());
  EXPECT_EQ(v.pre, "falcon");
  const auto read = Tokenizer::from_gguf(v);
  for (const auto& line : MixedText(5).lines(300))
    ASSERT_EQ(read->encode(line, true), tokenizer->encode(line, true)) << line;
}

TEST(Gguf, SentencepieceVocabularyMergesByScore) {
  GgufVocabulary v;
  v.model = "llama";
  v.tokens = {"<unk>", "<s>", "</s>", "▁", "a", "b", "c", "ab", "bc", "▁a", "▁abc"};
  v.scores = {0, 0, 0, -9, -9, -9, -9, -2, -1, -3, -4};
  v.token_types = {2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1};
  for (int byte = 0; byte < 256; ++byte) {
    v.tokens.push_back(fmt::format("<0x{:02X}>", byte));
    v.scores.push_back(0);
    v.token_types.push_back(6);
  }
  v.special = {.bos = 1, .eos = 2, .pad = -1, .unk = 0, .add_bos = true, .add_eos = false};
  const auto tokenizer = Tokenizer::from_gguf(v);
  const auto ids_of = [&](std::initializer_list<const char*> tokens) {
    std::vector<int32_t> ids;
    for (const char* token : tokens) ids.push_back(*tokenizer->token_to_id(token));
    return ids;
  };
  // bc scores above ab, so the latter never forms; with ▁a it makes ▁abc.
  EXPECT_EQ(tokenizer->encode("abc", true), ids_of({"<s>", "▁abc"}));
  EXPECT_EQ(tokenizer->encode("ab", false), ids_of({"▁", "ab"}));
  EXPECT_EQ(tokenizer->encode("é", false), ids_of({"▁", "<0xC3>", "<0xA9>"}));
  EXPECT_EQ(tokenizer->encode("a</s>a", false), ids_of({"▁a", "</s>", "▁a"}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("abc é ab", true)), "abc é ab");
  v.add_space_prefix = false;
  EXPECT_EQ(Tokenizer::from_gguf(v)->encode("ab", false), ids_of({"ab"}));
}

TEST(Encode, RunsOnManyThreadsAtOnce) {
  const auto tokenizer = Tokenizer::from_gguf(smollm_vocabulary());
  const auto lines = MixedText(5).lines(200);
  std::vector<std::vector<int32_t>> wanted;
  for (const auto& line : lines) wanted.push_back(tokenizer->encode(line, true));
  std::vector<std::thread> threads;
  std::atomic<int> num_wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (size_t i = 0; i < lines.size(); ++i)
        num_wrong += tokenizer->encode(lines[i], true) != wanted[i];
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(num_wrong, 0);
}

}  // namespace
}  // namespace snug::tokenizer::test
