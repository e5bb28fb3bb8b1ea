// SPDX-License-Identifier: Apache-2.0
#include "text/template/chat_template.h"

#include <utility>

#include "text/template/interpreter.h"
#include "text/tokenizer/unicode.h"

namespace snug::tokenizer {

struct ChatTemplate::Parsed {
  jinja::Template program;
};

ChatTemplate::ChatTemplate(std::string_view source, std::string where)
    : parsed_(new Parsed{jinja::Template(repair_utf8(source), std::move(where))}) {}

ChatTemplate::~ChatTemplate() = default;

std::string ChatTemplate::apply(std::span<const Message> messages, bool add_generation_prompt,
                                const std::map<std::string, std::string>& tokens) const {
  jinja::List list;
  for (const Message& message : messages) {
    jinja::Dict entry;
    entry.entries = {{"role", repair_utf8(message.role)},
                     {"content", repair_utf8(message.content)}};
    list.emplace_back(std::move(entry));
  }
  jinja::Dict variables;
  variables.entries = {{"messages", std::move(list)},
                       {"tools", jinja::Value()},
                       {"documents", jinja::Value()},
                       {"add_generation_prompt", add_generation_prompt}};
  for (const auto& [name, text] : tokens) variables.set(name, text);
  return parsed_->program.render(variables);
}

}  // namespace snug::tokenizer
