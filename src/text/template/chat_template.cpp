// SPDX-License-Identifier: Apache-2.0
#include "text/template/chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "text/template/interpreter.h"
#include "text/tokenizer/unicode.h"

namespace snug::tokenizer {

struct ChatTemplate::Parsed {
  jinja::Template program;
  std::string source, where;
  bool in_parts;

  bool reads(std::string_view key) const { return source.find(key) != std::string::npos; }
  void check_reads(const Message& message, const std::string& key) const;
  jinja::Value entry_of(const Message& message) const;
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

// What an answer says in a key of its own is lost where the template does not write it.
void ChatTemplate::Parsed::check_reads(const Message& message, const std::string& key) const {
  if (reads(key)) return;
  if (key == "tool_calls" || key == "function_call")
    throw UserError(
        "a turn has \"{}\", which the chat template ({}) does not write; put the call into "
        "\"content\", or leave the row out",
        key, where);
  if (message.role == "assistant" && (key == "reasoning_content" || key == "thinking"))
    warn("answers have \"{}\", which the chat template ({}) does not write; it is left out", key,
         where);
}

jinja::Value ChatTemplate::Parsed::entry_of(const Message& message) const {
  jinja::Dict entry;
  entry.entries = {{"role", repair_utf8(message.role)},
                   {"content", in_parts ? parts_of(repair_utf8(message.content))
                                        : jinja::Value(repair_utf8(message.content))}};
  if (!message.more.empty()) {
    const auto more = nlohmann::ordered_json::parse(message.more);
    for (const auto& item : more.items()) {
      check_reads(message, item.key());
      entry.set(item.key(), jinja::value_of(item.value()));
    }
  }
  return entry;
}

ChatTemplate::ChatTemplate(std::string_view source, std::string where)
    : parsed_(new Parsed{jinja::Template(repair_utf8(source), where), std::string(source),
                         std::move(where), takes_parts(source)}) {}

ChatTemplate::~ChatTemplate() = default;

std::string ChatTemplate::apply(std::span<const Message> messages, bool add_generation_prompt,
                                std::string_view tools,
                                const std::map<std::string, std::string>& tokens) const {
  jinja::List list;
  for (const Message& message : messages) list.push_back(parsed_->entry_of(message));
  jinja::Value tool_list;
  if (!tools.empty()) {
    if (!parsed_->reads("tools"))
      warn("rows have \"tools\", which the chat template ({}) does not write; they are left out",
           parsed_->where);
    tool_list = jinja::value_of(nlohmann::ordered_json::parse(tools));
  }
  jinja::Dict variables;
  variables.entries = {{"messages", std::move(list)},
                       {"tools", std::move(tool_list)},
                       {"documents", jinja::Value()},
                       {"add_generation_prompt", add_generation_prompt}};
  for (const auto& [name, text] : tokens) variables.set(name, text);
  return parsed_->program.render(variables);
}

}  // namespace snug::tokenizer
