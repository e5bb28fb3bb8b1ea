// What stands in place of a tokenizer's own template and end of sequence: by name, kept when it is
// written, and the templates by name beside those of other programs.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "gguf_sample.h"
#include "mixed_text.h"
#include "support/temp_folder.h"
#include "text/template/chat_template.h"
#include "text/template/named_templates.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::tokenizer::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using snug::test::TempFolder;

std::vector<Message> messages_of(const json& list) {
  std::vector<Message> messages;
  for (const json& entry : list)
    messages.push_back({.role = entry["role"], .content = entry["content"]});
  return messages;
}

// As transformers renders what TRL and axolotl have under these names.
TEST(NamedTemplates, WriteWhatOtherProgramsDo) {
  const ChatTemplate::Tokens tokens{{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  std::vector<std::string> seen;
  for (const json& chat : json::parse(read_file(data_path("named_templates.json")))) {
    const std::string name = chat["template"];
    SCOPED_TRACE(name);
    const ChatTemplate text(named_template(name), name);
    std::vector<Message> turns = messages_of(chat["messages"]);
    EXPECT_EQ(text.apply(turns, false, "", tokens), chat["text"]);
    const RenderedChat rendered = text.render_chat(turns, "", tokens);
    ASSERT_EQ(rendered.answers.size(), 2U);
    const std::string last = rendered.text.substr(
        rendered.answers[1].begin, rendered.answers[1].end - rendered.answers[1].begin);
    EXPECT_EQ(last.substr(0, 7), "Yes {x}");
    turns.pop_back();
    EXPECT_EQ(text.apply(turns, true, "", tokens), chat["prompt"]);
    seen.push_back(name);
  }
  for (const std::string_view name : template_names())
    EXPECT_EQ(std::ranges::count(seen, name) > 0, true) << name;
  EXPECT_TRUE(named_template("llama2").empty());
}

class Changes : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(own());
    fs::copy_file(data_path("qwen2/tokenizer.json"), own() / "tokenizer.json");
    write_file_atomically(own() / "tokenizer_config.json",
                          json{{"eos_token", "<|endoftext|>"}, {"chat_template", "own"}}.dump());
    write_file_atomically(own() / "chat_template.json", json{{"chat_template", "own"}}.dump());
  }
  fs::path own() const { return folder_ / "own"; }

  TempFolder folder_;
  const TokenizerChanges changes_{.chat_template = "{{ messages[0].content }}{{ eos_token }}",
                                  .where = "ours",
                                  .eos_token = "<|eot_id|>"};
};

TEST_F(Changes, AreWrittenOutAndReadAgain) {
  const auto changed = Tokenizer::from_directory(own(), changes_);
  EXPECT_TRUE(changed->has_other_eos());
  EXPECT_EQ(changed->special().eos, changed->token_to_id("<|eot_id|>"));
  const std::vector<Message> chat{{"user", "Hi"}};
  EXPECT_EQ(changed->apply_chat_template(chat, false), "Hi<|eot_id|>");
  changed->write_directory(folder_ / "new");
  const auto read = Tokenizer::from_directory(folder_ / "new");
  EXPECT_FALSE(read->has_other_eos());
  EXPECT_EQ(read->special().eos, changed->special().eos);
  EXPECT_EQ(read->apply_chat_template(chat, false), "Hi<|eot_id|>");
  for (const auto& line : MixedText(3).lines(50))
    EXPECT_EQ(read->encode(line, true), changed->encode(line, true)) << line;
  // So that no other program finds the old one.
  EXPECT_FALSE(fs::exists(folder_ / "new/chat_template.json"));
  EXPECT_FALSE(
      json::parse(read_file(folder_ / "new/tokenizer_config.json")).contains("chat_template"));
  EXPECT_EQ(changes_in(folder_ / "new").eos_token, "<|eot_id|>");
  EXPECT_EQ(changes_in(folder_ / "new").chat_template, changes_.chat_template);
  EXPECT_TRUE(changes_in(folder_ / "nowhere").empty());
}

TEST_F(Changes, OfNothingLeaveTheFilesAsTheyAre) {
  Tokenizer::from_directory(own())->write_directory(folder_ / "new");
  for (const char* name : {"tokenizer_config.json", "chat_template.json"})
    EXPECT_EQ(read_file(folder_ / "new" / name), read_file(own() / name));
  EXPECT_FALSE(fs::exists(folder_ / "new/chat_template.jinja"));
}

TEST_F(Changes, NameATokenThatTheVocabularyHas) {
  TokenizerChanges wrong = changes_;
  wrong.eos_token = "<|done|>";
  try {
    Tokenizer::from_directory(own(), wrong);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("eos_token = <|done|>: the vocabulary of "),
              std::string::npos)
        << error.what();
  }
  EXPECT_THROW(Tokenizer::from_gguf(smollm_vocabulary(), wrong), UserError);
}

// New ones come behind all others, in order; those that are there are none.
TEST_F(Changes, AddTokens) {
  for (const char* kind : {"qwen2", "sentencepiece"}) {
    SCOPED_TRACE(kind);
    const fs::path source = data_path(kind);
    const auto before = Tokenizer::from_directory(source);
    const std::string known = before->id_to_token(300);
    const auto changed = Tokenizer::from_directory(
        source, {.eos_token = "<|new|>", .tokens = {"<|new|>", known, "<|more|>"}});
    const auto end = static_cast<int32_t>(before->vocabulary_size());
    EXPECT_EQ(changed->num_new_tokens(), 2);
    EXPECT_EQ(changed->vocabulary_size(), end + 2);
    EXPECT_EQ(changed->special().eos, end);
    EXPECT_TRUE(changed->is_special(end));
    const std::string text = "one<|new|> two<|more|>";
    const std::vector<int32_t> ids = changed->encode(text, false);
    EXPECT_EQ(std::ranges::count(ids, end), 1);
    EXPECT_EQ(ids.back(), end + 1);
    if (std::string(kind) == "qwen2") {
      EXPECT_EQ(changed->decode(ids, false), text);
    }
    const fs::path out = folder_ / (std::string(kind) + "-new");
    changed->write_directory(out);
    const auto read = Tokenizer::from_directory(out);
    EXPECT_EQ(read->vocabulary_size(), end + 2);
    EXPECT_EQ(read->num_new_tokens(), 0);
    EXPECT_EQ(read->special().eos, end);
    for (std::string line : MixedText(3).lines(50)) {
      line += "<|more|>" + known + line;
      EXPECT_EQ(read->encode(line, true), changed->encode(line, true)) << line;
    }
    const GgufVocabulary vocabulary = changed->gguf_vocabulary(changed->vocabulary_size());
    EXPECT_EQ(vocabulary.tokens.back(), "<|more|>");
  }
  GgufVocabulary vocabulary = smollm_vocabulary();
  const size_t end = vocabulary.tokens.size();
  const auto changed =
      Tokenizer::from_gguf(vocabulary, {.tokens = {vocabulary.tokens[40], "<|new|>"}});
  EXPECT_EQ(changed->num_new_tokens(), 1);
  EXPECT_EQ(changed->encode("<|new|>", false), std::vector<int32_t>{static_cast<int32_t>(end)});
  EXPECT_TRUE(changed->is_special(40));
}

// What a vocabulary says of a token that it has stays, but that it is special now.
TEST_F(Changes, LeaveTheRulesOfKnownTokens) {
  json tokens = json::parse(read_file(own() / "tokenizer.json"));
  json& entry = tokens["added_tokens"][1];
  ASSERT_EQ(entry["content"], "<|eot_id|>");
  entry["rstrip"] = true;
  entry["special"] = false;
  write_file_atomically(own() / "tokenizer.json", tokens.dump());
  const auto changed = Tokenizer::from_directory(own(), {.tokens = {"<|eot_id|>", "<|new|>"}});
  EXPECT_EQ(changed->num_new_tokens(), 1);
  changed->write_directory(folder_ / "new");
  const auto read = Tokenizer::from_directory(folder_ / "new");
  const std::string text = "a<|eot_id|>  b<|new|>  c";
  EXPECT_EQ(read->encode(text, false), changed->encode(text, false));
  EXPECT_EQ(changed->decode(changed->encode(text, false)), "ab  c");
  EXPECT_EQ(read->decode(read->encode(text, false)), "ab  c");
}

// Of the tokenizers that may stand in a folder, those that have no place for added tokens.
TEST_F(Changes, AddTokensToFilesWithoutAny) {
  json tokens = json::parse(read_file(data_path("gpt2/tokenizer.json")));
  tokens.erase("added_tokens");
  fs::create_directories(folder_ / "bare");
  fs::create_directories(folder_ / "halves");
  write_file_atomically(folder_ / "bare/tokenizer.json", tokens.dump());
  write_file_atomically(folder_ / "halves/vocab.json", tokens["model"]["vocab"].dump());
  std::string merges;
  for (const json& rule : tokens["model"]["merges"])
    merges += (rule.is_string() ? rule.get<std::string>()
                                : rule[0].get<std::string>() + " " + rule[1].get<std::string>()) +
              "\n";
  write_file_atomically(folder_ / "halves/merges.txt", merges);
  for (const char* kind : {"bare", "halves"}) {
    SCOPED_TRACE(kind);
    const auto changed = Tokenizer::from_directory(
        folder_ / kind, {.chat_template = "t", .where = "ours", .tokens = {"<|new|>"}});
    const fs::path out = folder_ / (std::string(kind) + "-new");
    changed->write_directory(out);
    const auto read = Tokenizer::from_directory(out);
    const auto id = static_cast<int32_t>(changed->vocabulary_size() - 1);
    EXPECT_EQ(read->encode("a<|new|>", false), changed->encode("a<|new|>", false));
    EXPECT_EQ(read->encode("<|new|>", false), std::vector<int32_t>{id});
    EXPECT_TRUE(read->is_special(id));
    EXPECT_TRUE(fs::exists(out / "chat_template.jinja"));
  }
}

// As snug fills a file up to the rows of its embedding.
TEST_F(Changes, TakeTheRowsOfAGgufFileThatHaveNoToken) {
  GgufVocabulary vocabulary = smollm_vocabulary();
  const auto end = static_cast<int32_t>(vocabulary.tokens.size());
  for (const char* name : {"[PAD0]", "[PAD1]"}) {
    vocabulary.tokens.emplace_back(name);
    vocabulary.token_types.push_back(5);
  }
  const auto changed = Tokenizer::from_gguf(vocabulary, {.tokens = {"<|a|>", "<|b|>", "<|c|>"}});
  EXPECT_EQ(changed->encode("<|a|><|b|><|c|>", false),
            (std::vector<int32_t>{end, end + 1, end + 2}));
  EXPECT_EQ(changed->num_new_tokens(), 3);
}

TEST_F(Changes, OfAGgufFilesVocabulary) {
  GgufVocabulary vocabulary = smollm_vocabulary();
  TokenizerChanges changes = changes_;
  changes.eos_token = vocabulary.tokens[5];
  const auto changed = Tokenizer::from_gguf(vocabulary, changes);
  EXPECT_EQ(changed->special().eos, 5);
  const GgufVocabulary again = changed->gguf_vocabulary(changed->vocabulary_size());
  EXPECT_EQ(again.special.eos, 5);
  EXPECT_EQ(again.chat_template, changes.chat_template);
  changed->write_directory(folder_ / "new");
  const auto read = Tokenizer::from_directory(folder_ / "new");
  EXPECT_EQ(read->special().eos, 5);
  EXPECT_EQ(read->apply_chat_template(std::vector<Message>{{"user", "Hi"}}, false),
            "Hi" + vocabulary.tokens[5]);
}

}  // namespace
}  // namespace snug::tokenizer::test
