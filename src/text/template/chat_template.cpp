// SPDX-License-Identifier: Apache-2.0
#include "text/template/chat_template.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "text/template/answers.h"
#include "text/template/interpreter.h"
#include "text/template/keys.h"
#include "text/tokenizer/unicode.h"

namespace snug::tokenizer {

using Json = nlohmann::ordered_json;

struct ChatTemplate::Parsed {
  Parsed(std::string_view source, std::string its_place);

  std::string where;
  jinja::Template program;
  bool in_parts;
  jinja::Keys keys;
  // Found out with the first conversation.
  mutable std::once_flag once;
  mutable bool writes_objects = true, writes_texts = true;  // as a call's arguments
  mutable std::string opening;                              // of an answer, behind a question

  std::string render(std::span<const Message> messages, bool opens, std::string_view tools,
                     const Tokens& tokens, jinja::Trace* trace) const;
  void try_out(const Tokens& tokens) const;
  bool writes_arguments(const Json& arguments, const Tokens& tokens) const;
  Json arguments_for(const Json& given) const;
  void convert_arguments(Json& calls) const;
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

ChatTemplate::Parsed::Parsed(std::string_view source, std::string its_place)
    : where(std::move(its_place)),
      program(repair_utf8(source), where),
      in_parts(takes_parts(source)),
      keys(jinja::keys_of(program.block())) {}

std::string ChatTemplate::Parsed::render(std::span<const Message> messages, bool opens,
                                         std::string_view tools, const Tokens& tokens,
                                         jinja::Trace* trace) const {
  jinja::List list;
  for (const Message& message : messages) {
    list.push_back(entry_of(message));
    if (trace != nullptr) trace->turns.push_back(list.back().shared_dict().get());
  }
  jinja::Dict variables;
  variables.entries = {
      {"messages", std::move(list)},
      {"tools", tools.empty() ? jinja::Value() : jinja::value_of(Json::parse(tools))},
      {"documents", jinja::Value()},
      {"add_generation_prompt", opens}};
  for (const auto& [name, text] : tokens) variables.set(name, text);
  return program.render(variables, trace);
}

// Whether a call's arguments are written as JSON, and not as Python or quoted once more.
bool ChatTemplate::Parsed::writes_arguments(const Json& arguments, const Tokens& tokens) const {
  const Json call = {{"id", "call00000"},
                     {"type", "function"},
                     {"function", {{"name", "f"}, {"arguments", arguments}}}};
  for (const Json& content : {Json(""), Json()}) {
    Json more = {{"tool_calls", Json::array({call})}};
    if (content.is_null()) more["content"] = content;
    const std::array<Message, 2> turns{
        Message{"user", "q"}, Message{.role = "assistant", .content = "", .more = more.dump()}};
    try {
      const std::string text = render(turns, false, "", tokens, nullptr);
      const size_t key = text.find("snug_key");
      if (key == text.npos) continue;
      const bool is_quoted_otherwise =
          key > 0 && (text[key - 1] == '\'' || text.substr(0, key).ends_with("\\\""));
      if (!is_quoted_otherwise) return true;
    } catch (const UserError&) {
    }
  }
  return false;
}

void ChatTemplate::Parsed::try_out(const Tokens& tokens) const {
  std::call_once(once, [&] {
    if (keys.asked.contains("tool_calls")) {
      const Json arguments = {{"snug_key", "v"}};
      const bool objects = writes_arguments(arguments, tokens);
      const bool texts = writes_arguments(arguments.dump(), tokens);
      // Where it writes neither, they stay as they are given.
      writes_objects = objects || !texts;
      writes_texts = texts || !objects;
    }
    const Message question{"user", "q"};
    opening = opening_behind({&question, 1},
                             [&](std::span<const Message> turns, bool opens, jinja::Trace* trace) {
                               return render(turns, opens, "", tokens, trace);
                             });
  });
}

Json ChatTemplate::Parsed::arguments_for(const Json& given) const {
  if (given.is_object() && !writes_objects) return given.dump();
  if (!given.is_string() || writes_texts) return given;
  Json parsed = Json::parse(given.get_ref<const std::string&>(), nullptr, false);
  return parsed.is_object() ? parsed : given;
}

void ChatTemplate::Parsed::convert_arguments(Json& calls) const {
  if (!calls.is_array()) return;
  for (Json& call : calls) {
    if (!call.is_object()) continue;
    Json& function = call.contains("function") ? call["function"] : call;
    if (function.is_object() && function.contains("arguments"))
      function["arguments"] = arguments_for(function["arguments"]);
  }
}

jinja::Value ChatTemplate::Parsed::entry_of(const Message& message) const {
  Json more = message.more.empty() ? Json::object() : Json::parse(message.more);
  const bool takes_calls = keys.asked.contains("tool_calls");
  bool has_content = !more.contains("content");
  more.erase("content");
  std::string content = message.content;
  if (message.calls_are_content && !takes_calls) more.erase("tool_calls");
  if (message.calls_are_content && takes_calls) {
    content.clear();
    // Some write calls only where nothing is said.
    has_content = !keys.asked_whether_none.contains("content");
  }
  for (const char* key : {"tool_calls", "function_call"})
    if (more.contains(key) && !keys.asked.contains(key))
      throw UserError(
          "a turn has \"{}\", which the chat template ({}) does not write; put the call into "
          "\"content\", or leave the row out",
          key, where);
  if (more.contains("tool_calls")) convert_arguments(more["tool_calls"]);
  jinja::Dict entry;
  entry.entries = {{"role", repair_utf8(message.role)}};
  if (has_content)
    entry.set("content",
              in_parts ? parts_of(repair_utf8(content)) : jinja::Value(repair_utf8(content)));
  else if (keys.asked_whether_none.contains("content"))
    entry.set("content", jinja::Value());
  for (const auto& item : more.items()) entry.set(item.key(), jinja::value_of(item.value()));
  for (const char* key : kThoughtKeys) {
    const auto thought = more.find(key);
    if (thought == more.end()) continue;
    for (const char* other : kThoughtKeys)
      if (!more.contains(other) && (keys.asked.contains(other) || other != kThoughtKeys[2]))
        entry.set(other, jinja::value_of(*thought));
    break;
  }
  return entry;
}

ChatTemplate::ChatTemplate(std::string_view source, std::string where)
    : parsed_(new Parsed(source, std::move(where))) {}

ChatTemplate::~ChatTemplate() = default;

std::string ChatTemplate::apply(std::span<const Message> messages, bool add_generation_prompt,
                                std::string_view tools, const Tokens& tokens) const {
  parsed_->try_out(tokens);
  return parsed_->render(messages, add_generation_prompt, tools, tokens, nullptr);
}

RenderedChat ChatTemplate::render_chat(std::span<const Message> messages, std::string_view tools,
                                       const Tokens& tokens) const {
  parsed_->try_out(tokens);
  const RenderTurns render = [&](std::span<const Message> turns, bool opens, jinja::Trace* trace) {
    return parsed_->render(turns, opens, tools, tokens, trace);
  };
  RenderedChat chat = find_answers(messages, render, parsed_->opening, parsed_->keys.marks_answers);
  if (!tools.empty() && !parsed_->keys.variables.contains("tools"))
    chat.left_out.insert(chat.left_out.begin(), {0, 0, "list of tools", std::string(tools)});
  return chat;
}

}  // namespace snug::tokenizer
