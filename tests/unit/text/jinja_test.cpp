// Templates and snippets against Jinja itself, set up as transformers does
// (tests/oracles/tokenizer_jinja.py); and templates that mean harm.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/error.h"
#include "mixed_text.h"
#include "text/template/chat_template.h"
#include "text/template/interpreter.h"

namespace snug::tokenizer::test {
namespace {

std::string render(const std::string& source, const nlohmann::ordered_json& variables = {}) {
  const jinja::Template program(source, "test");
  const jinja::Value values =
      jinja::value_of(variables.is_null() ? nlohmann::ordered_json::object() : variables);
  return program.render(values.dict());
}

TEST(Jinja, SnippetsRenderAsInJinja) {
  const auto data = read_data("jinja.json");
  for (const auto& snippet : data["snippets"]) {
    const std::string source = snippet["template"];
    if (snippet["expected"].is_null()) {
      EXPECT_THROW(render(source, data["variables"]), UserError) << source;
    } else {
      EXPECT_EQ(render(source, data["variables"]), snippet["expected"]) << source;
    }
  }
}

TEST(Jinja, ChatTemplatesRenderAsInJinja) {
  const auto data = read_data("jinja.json");
  const auto tokens = data["tokens"].get<std::map<std::string, std::string>>();
  for (const auto& chat : data["chats"]) {
    std::vector<Message> messages;
    for (const auto& message : chat["messages"]) {
      auto more = message;  // null contents among it
      more.erase("role");
      if (message["content"].is_string()) more.erase("content");
      messages.push_back({.role = message["role"],
                          .content = message["content"].is_string() ? message["content"] : "",
                          .more = more.empty() ? "" : more.dump()});
    }
    const ChatTemplate chat_template(chat["template"].get<std::string>(), "test");
    const auto apply = [&] {
      const auto tools = chat.find("tools");
      const bool has_tools = tools != chat.end() && !tools->is_null();
      return chat_template.apply(messages, chat["add_generation_prompt"],
                                 has_tools ? tools->dump() : "", tokens);
    };
    if (chat["expected"].is_null()) {
      EXPECT_THROW(apply(), UserError) << chat["name"];
    } else {
      EXPECT_EQ(apply(), chat["expected"]) << chat["name"];
    }
  }
}

TEST(Jinja, ErrorsNameTheTemplateAndTheLine) {
  try {
    render("one\n\n{{ raise_exception('two roles in a row') }}");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("test: line 3"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("two roles in a row"), std::string::npos);
  }
}

std::string repeated(const std::string& text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

TEST(Jinja, HostileTemplatesEndInAnError) {
  const std::string loop = "{% for a in range(100000) %}";
  const std::string sources[] = {
      loop + loop + "x{% endfor %}{% endfor %}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% set ns = namespace(a='xxxxxxxx') %}{% for i in range(99) %}{% set ns.a = ns.a ~ ns.a "
      "%}{% endfor %}",
      "{% set ns = namespace(a=[1]) %}{% for i in range(99) %}{% set ns.a = ns.a + ns.a %}{% "
      "endfor %}",
      "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
      "{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns.a == ns.a }}{{ ns | tojson }}",
      "{{ 'x' * 9999999999 }}",
      "{{ [1] * 9999999999 }}",
      "{{ 9223372036854775807 + 1 }}",
      "{{ 2 ** 9999999 }}",
      "{{ 99999999999999999999 }}",
      "{{ '\\ud800' }}",
      "{{" + repeated("(", 5000) + "1" + repeated(")", 5000) + "}}",
      "{{" + repeated("[", 5000),
      "{{ 1" + repeated("+1", 100000) + "}}",
      "{{ a" + repeated(".b", 100000) + "}}",
      "{{ 1" + repeated("|string", 100000) + "}}",
      repeated("{% if 1 %}", 5000),
      "{% if 0 %}" + repeated("{% elif 0 %}", 5000) + "{% endif %}",
      "{{ not " + repeated("not ", 5000) + "1 }}",
      "{{ " + repeated("-", 5000) + "1 }}",
  };
  for (const auto& source : sources) {
    EXPECT_THROW(render(source), UserError) << source.substr(0, 80);
  }
}

TEST(Jinja, ExtremeNumbersDoNotOverflow) {
  EXPECT_EQ(render("{{ (-9223372036854775807 - 1) % -1 }}"), "0");
  EXPECT_THROW(render("{{ (-9223372036854775807 - 1) // -1 }}"), UserError);
  EXPECT_EQ(render("{{ (-1) ** 9999999999 }}{{ 0 ** 9999999999 }}{{ 1 ** 9999999999 }}"), "-101");
  EXPECT_EQ(render("{{ 'abc'[9223372036854775807:] }}{{ 'abc'[:-9223372036854775807] }}"), "");
  EXPECT_EQ(render("{{ 'abc'[::9223372036854775807] }}"), "a");
}

}  // namespace
}  // namespace snug::tokenizer::test
