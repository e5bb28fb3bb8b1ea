// SPDX-License-Identifier: Apache-2.0
#include "text/template/chat_template.h"

#include <algorithm>
#include <utility>

#include "text/template/interpreter.h"
#include "text/tokenizer/unicode.h"

namespace snug::tokenizer {

struct ChatTemplate::Parsed {
  jinja::Template program;
  bool in_parts;
};

namespace {

// Whether it takes a message's content as a list of texts and pictures, and not as a text too.
bool takes_parts(std::string_view source) {
  const bool pictures = source.find("'image'") != std::string_view::npos ||
                        source.find("\"image\"") != std::string_view::npos;
  return pictures && source.find("is string") == std::string_view::npos;
}

// [{"type": "text", "text": …}, {"type": "image"}, …]: pictures stand as "<image>" in the content.
jinja::Value parts_of(const std::string& content) {
  constexpr std::string_view kPicture = "<image>";
  jinja::List parts;
  const auto add = [&parts](jinja::Dict part) { parts.emplace_back(std::move(part)); };
  size_t at = 0;
  do {
    const size_t end = std::min(content.find(kPicture, at), content.size());
    if (end > at || content.empty()) {
      jinja::Dict text;
      text.entries = {{"type", "text"}, {"text", content.substr(at, end - at)}};
      add(std::move(text));
    }
    at = end + kPicture.size();
    if (end == content.size()) break;
    jinja::Dict picture;
    picture.entries = {{"type", "image"}};
    add(std::move(picture));
  } while (at < content.size());
  return parts;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, std::string where)
    : parsed_(new Parsed{jinja::Template(repair_utf8(source), std::move(where)),
                         takes_parts(source)}) {}

ChatTemplate::~ChatTemplate() = default;

std::string ChatTemplate::apply(std::span<const Message> messages, bool add_generation_prompt,
                                const std::map<std::string, std::string>& tokens) const {
  jinja::List list;
  for (const Message& message : messages) {
    jinja::Dict entry;
    entry.entries = {{"role", repair_utf8(message.role)},
                     {"content", parsed_->in_parts ? parts_of(repair_utf8(message.content))
                                                   : jinja::Value(repair_utf8(message.content))}};
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
