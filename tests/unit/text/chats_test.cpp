// Whose words are where in a chat, against transformers (tests/oracles/chats.py).
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "text/template/chat_template.h"

namespace snug::tokenizer {
namespace {

using nlohmann::ordered_json;

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

std::vector<Message> messages_of(const ordered_json& given) {
  std::vector<Message> messages;
  for (ordered_json message : given) {
    Message made{message["role"], message["content"]};
    message.erase("role");
    message.erase("content");
    if (!message.empty()) made.more = message.dump();
    messages.push_back(std::move(made));
  }
  return messages;
}

// Each answer's text; neighbours are one.
std::vector<std::string> answers_of(const std::string& text,
                                    const std::vector<std::pair<size_t, size_t>>& answers) {
  std::vector<std::string> texts;
  size_t last = std::string::npos;
  for (const auto& [begin, end] : answers) {
    if (begin == last)
      texts.back() += text.substr(begin, end - begin);
    else
      texts.push_back(text.substr(begin, end - begin));
    last = end;
  }
  return texts;
}

class Chats : public testing::TestWithParam<std::string> {
 protected:
  static const ordered_json& document() {
    static const ordered_json read = ordered_json::parse(
        read_file(std::filesystem::path(SNUG_SOURCE_DIR) / "tests/data/tokenizer/chats.json"));
    return read;
  }
};

TEST_P(Chats, HaveTheTextAndTheAnswersThatTransformersFinds) {
  const ordered_json& all = document();
  const ordered_json& own = all["templates"][GetParam()];
  const auto tokens = all["tokens"].get<std::map<std::string, std::string>>();
  const std::string source = own["template"];
  const ChatTemplate marked(
      replaced(replaced(source, "«", "{% generation %}"), "»", "{% endgeneration %}"), "marked");
  const ChatTemplate plain(replaced(replaced(source, "«", ""), "»", ""), "plain");
  int answers = 0;
  for (const ordered_json& test : own["cases"]) {
    SCOPED_TRACE(test["messages"].dump());
    const std::vector<Message> messages = messages_of(test["messages"]);
    for (const ChatTemplate* chat : {&marked, &plain}) {
      SCOPED_TRACE(chat == &marked ? "with marks" : "without marks");
      if (test["expected"].is_null()) {
        EXPECT_THROW(chat->render_chat(messages, "", tokens), UserError);
        continue;
      }
      const RenderedChat found = chat->render_chat(messages, "", tokens);
      EXPECT_EQ(found.text, test["expected"]["text"].get<std::string>());
      std::vector<std::pair<size_t, size_t>> own_answers;
      for (const RenderedChat::Answer& answer : found.answers)
        own_answers.emplace_back(answer.begin, answer.end);
      EXPECT_EQ(answers_of(found.text, own_answers),
                answers_of(found.text, test["expected"]["answers"]));
      answers += static_cast<int>(own_answers.size());
    }
  }
  EXPECT_GT(answers, 40);
}

std::string name_of(const testing::TestParamInfo<std::string>& info) { return info.param; }

INSTANTIATE_TEST_SUITE_P(Templates, Chats,
                         testing::Values("turns", "thoughts", "dropped", "channels", "ended",
                                         "instructions", "within", "numbers", "in_the_loop",
                                         "macros", "own_messages", "names"),
                         name_of);

// What a turn has and the text has not is said, where it would stand.
TEST(ChatsLeftOut, AreNamedInTheirPlace) {
  const ChatTemplate chat(
      "{% for m in messages %}{% if m.role == 'user' %}U{{ m.content }}"
      "{% elif m.role == 'assistant' %}A{{ m.content.split('</think>')[-1] }}.{% endif %}"
      "{% endfor %}{% if add_generation_prompt %}A{% endif %}",
      "test");
  const std::vector<Message> messages = {
      {"user", "q"},
      {"critic", "bad"},
      {"assistant", "<think>well</think>a"},
      {"user", "r"},
      {.role = "assistant", .content = "b", .more = R"({"reasoning": "hm"})"}};
  const RenderedChat found = chat.render_chat(messages, R"([{"name": "f"}])", {});
  EXPECT_EQ(found.text, "UqAa.UrAb.");
  std::vector<std::string> said;
  for (const RenderedChat::LeftOut& part : found.left_out)
    said.push_back(std::to_string(part.at) + " " + part.what + ": " + part.words);
  EXPECT_EQ(said, (std::vector<std::string>{"0 list of tools: [{\"name\": \"f\"}]",
                                            "2 turn of role critic: bad", "3 thought: well",
                                            "8 thought: hm"}));
}

// The same call, its arguments as an object and as its text: each template gets what it can write.
TEST(ChatCalls, HaveTheirArgumentsAsTheTemplateWritesThem) {
  const auto rendered = [](const std::string& written, const std::string& arguments) {
    const ChatTemplate chat(
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}" + written +
            "{% endfor %}{% endfor %}",
        "test");
    const Message call{
        .role = "assistant",
        .content = "",
        .more = R"({"tool_calls":[{"function":{"name":"f","arguments":)" + arguments + "}}]}"};
    return chat.render_chat({&call, 1}, "", {}).text;
  };
  const std::string object = R"({"a": 1})", text = R"("{\"a\":1}")";
  const std::string as_json = "{{ c.function.arguments | tojson }}",
                    as_text = "{{ '<' + c.function.arguments + '>' }}",
                    either =
                        "{% if c.function.arguments is string %}{{ c.function.arguments }}"
                        "{% else %}{{ c.function.arguments | tojson }}{% endif %}",
                    by_key =
                        "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}"
                        "{% endfor %}";
  EXPECT_EQ(rendered(as_json, object), R"({"a": 1})");
  EXPECT_EQ(rendered(as_json, text), R"({"a": 1})");
  EXPECT_EQ(rendered(as_text, object), R"(<{"a":1}>)");
  EXPECT_EQ(rendered(as_text, text), R"(<{"a":1}>)");
  EXPECT_EQ(rendered(either, object), R"({"a": 1})");
  EXPECT_EQ(rendered(either, text), R"({"a":1})");
  EXPECT_EQ(rendered(by_key, object), "a=1");
  EXPECT_EQ(rendered(by_key, text), "a=1");
}

// Marks that end the turn or begin the next one, and the mark that ends a conversation.
TEST(ChatEnds, AreTheMarksBehindAnAnswer) {
  const auto ends = [](const std::string& chat_template) {
    GgufVocabulary vocabulary{.model = "gpt2", .pre = "default"};
    for (int byte = 33; byte < 127; ++byte)
      vocabulary.tokens.push_back(std::string(1, static_cast<char>(byte)));
    vocabulary.token_types.assign(vocabulary.tokens.size(), 1);
    for (const char* mark : {"<|U|>", "<|A|>", "<|E|>", "<|R|>"}) {
      vocabulary.tokens.emplace_back(mark);
      vocabulary.token_types.push_back(3);
    }
    vocabulary.chat_template = chat_template;
    const auto tokenizer = Tokenizer::from_gguf(std::move(vocabulary));
    std::string texts;
    for (const int32_t id : tokenizer->ends_of_answers()) texts += tokenizer->id_to_token(id);
    return texts;
  };
  const std::string marks = "{{ '<|U|>' if m.role == 'user' else '<|A|>' }}";
  EXPECT_EQ(ends("{% for m in messages %}" + marks + "{{ m.content }}<|E|>{% endfor %}"),
            "<|E|><|E|>");
  EXPECT_EQ(ends("{% for m in messages %}" + marks + "{{ m.content }}{% endfor %}"), "<|U|>");
  EXPECT_EQ(ends("{% for m in messages %}" + marks +
                 "{{ m.content }}{{ '<|R|>' if loop.last else '<|E|>' }}{% endfor %}"),
            "<|R|><|E|>");
  EXPECT_EQ(ends("{% for m in messages %}{{ m.content }}{% endfor %}"), "");
  EXPECT_EQ(ends(""), "");
}

}  // namespace
}  // namespace snug::tokenizer
