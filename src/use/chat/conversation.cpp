// SPDX-License-Identifier: Apache-2.0
#include "use/chat/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"

namespace snug::use {
namespace {

constexpr const char* kCommandList = "/help, /more, /clear, /system TEXT, /save FILE, /exit";

constexpr const char* kHelp =
    "/more         continue an answer that was cut off\n"
    "/clear        forget the conversation\n"
    "/system TEXT  set the system message; without TEXT, show it\n"
    "/save FILE    write the conversation as JSON lines that snug finetune reads\n"
    "/exit         end the chat; so do /quit and Ctrl-D\n"
    "A line that ends in \\ continues on the next one. Ctrl-C stops an answer or clears the line.\n"
    "To ask something that looks like a command, put a space before it.";

struct ChatCommand {
  std::string name;  // "/more"; empty: no command
  std::string rest;
};

// A slash and letters; "/etc/fstab" is not a command.
ChatCommand command_in(const std::string& entry) {
  if (!entry.starts_with('/')) return {};
  const size_t end = std::min(entry.find_first_of(" \t\n"), entry.size());
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (end < 2 ||
      !std::all_of(entry.begin() + 1, entry.begin() + static_cast<std::ptrdiff_t>(end), is_letter))
    return {};
  return {entry.substr(0, end), std::string(trimmed(std::string_view(entry).substr(end)))};
}

}  // namespace

Conversation::Conversation(ChatModel model, ConversationOptions options,
                           std::function<void(const std::string&)> note)
    : model_(std::move(model)), options_(std::move(options)), note_(std::move(note)) {}

bool Conversation::take(const std::string& entry) {
  const ChatCommand command = command_in(entry);
  if (command.name.empty())
    ask(entry);
  else if (command.name == "/help")
    note_(kHelp);
  else if (command.name == "/more")
    more();
  else if (command.name == "/clear")
    clear();
  else if (command.name == "/system")
    set_system(command.rest);
  else if (command.name == "/save")
    save(command.rest);
  else if (command.name == "/exit" || command.name == "/quit")
    return false;
  else
    note_(fmt::format("{} is not a command. Commands: {}", command.name, kCommandList));
  return true;
}

void Conversation::ask(const std::string& question) {
  const size_t first = first_;
  const int64_t prompt_tokens = prompt_tokens_;
  exchanges_.push_back({.question = question});
  try {
    answer_last();
  } catch (...) {
    exchanges_.pop_back();
    first_ = first;
    prompt_tokens_ = prompt_tokens;
    throw;
  }
}

void Conversation::answer_last() {
  const Prompt prompt = fitting_prompt();
  ChatAnswer& answer = exchanges_.back().answer;
  const ChatAnswer more = model_.answer(prompt, answer.ids, num_answers_++);
  answer.text += more.text;
  answer.ids.insert(answer.ids.end(), more.ids.begin(), more.ids.end());
  answer.end = more.end;
  note_end(more.ids.size());
}

// Drops the oldest exchanges if the conversation leaves too little room for an answer.
Prompt Conversation::fitting_prompt() {
  const int64_t wanted =
      model_.is_decoder ? std::min(options_.max_new_tokens, model_.positions / 4) : 0;
  const bool has_told = first_ > 0;
  while (true) {
    Prompt prompt = model_.prompt(turns());
    prompt_tokens_ = std::ssize(prompt.ids);
    const int64_t tokens = prompt_tokens_ + std::ssize(exchanges_.back().answer.ids);
    const bool is_last = !model_.keeps_turns || first_ + 1 == exchanges_.size();
    if (is_last || tokens + wanted <= model_.positions) {
      const bool is_refused = tokens + (model_.is_decoder ? 1 : 0) > model_.positions;
      if (first_ > 0 && !has_told && !is_refused)
        note_(
            fmt::format("[the conversation no longer fits into the model's {} tokens: the oldest "
                        "questions and answers are dropped from now on]",
                        with_commas(model_.positions)));
      return prompt;
    }
    ++first_;
  }
}

std::vector<tokenizer::Message> Conversation::turns() const {
  std::vector<tokenizer::Message> turns;
  if (model_.keeps_turns) {
    if (!options_.system.empty()) turns.push_back({"system", options_.system});
    for (size_t i = first_; i + 1 < exchanges_.size(); ++i) {
      turns.push_back({"user", exchanges_[i].question});
      turns.push_back({"assistant", exchanges_[i].answer.text});
    }
  }
  turns.push_back({"user", exchanges_.back().question});
  return turns;
}

bool Conversation::has_room() const {
  if (!model_.is_decoder) return false;
  const bool can_leave_out = model_.keeps_turns && first_ + 1 < exchanges_.size();
  const int64_t tokens = prompt_tokens_ + std::ssize(exchanges_.back().answer.ids);
  return can_leave_out || tokens < model_.positions;
}

void Conversation::note_end(size_t new_tokens) const {
  const AnswerEnd end = exchanges_.back().answer.end;
  if (end == AnswerEnd::Stopped) return note_("[stopped]");
  if (end == AnswerEnd::Complete) return;
  const std::string after =
      fmt::format("stopped after {} token{}", with_commas(static_cast<long long>(new_tokens)),
                  new_tokens == 1 ? "" : "s");
  if (has_room())
    note_(fmt::format("[{}; /more continues]", after));
  else if (!model_.is_decoder)
    note_(fmt::format("[{}; --max_new_tokens allows more]", after));
  else
    note_(fmt::format("[{}: the model's {} tokens are full; /clear starts over]", after,
                      with_commas(model_.positions)));
}

void Conversation::more() {
  if (exchanges_.empty()) return note_("There is no answer yet; ask something.");
  if (exchanges_.back().answer.end == AnswerEnd::Complete)
    return note_("The answer is complete; ask something.");
  if (!model_.is_decoder) return note_("An encoder-decoder's answer cannot be continued.");
  if (!has_room())
    return note_(fmt::format("The model's {} tokens are full; /clear starts over.",
                             with_commas(model_.positions)));
  answer_last();
}

void Conversation::clear() {
  exchanges_.clear();
  first_ = 0;
  note_(options_.system.empty() ? "The conversation is forgotten."
                                : "The conversation is forgotten; the system message stays.");
}

void Conversation::set_system(const std::string& text) {
  if (!model_.keeps_turns)
    return note_("The model sees each question by itself, without a system message.");
  if (text.empty())
    return note_(options_.system.empty() ? "There is no system message; /system TEXT sets one."
                                         : "System message: " + options_.system);
  options_.system = text;
  note_("The system message is set.");
}

void Conversation::save(const std::string& file) {
  using nlohmann::json;
  if (file.empty()) return note_("/save needs a file: /save chat.jsonl");
  if (exchanges_.empty()) return note_("There is nothing to save yet.");
  if (std::filesystem::exists(file) && !saved_.contains(file))
    throw UserError("{} exists already; give another file", file);
  std::string lines;
  json messages = json::array();
  const auto end_line = [&] {
    lines += json{{"messages", messages}}.dump(-1, ' ', false, json::error_handler_t::replace);
    lines += "\n";
    messages = json::array();
  };
  if (model_.keeps_turns && !options_.system.empty())
    messages.push_back({{"role", "system"}, {"content", options_.system}});
  for (const Exchange& exchange : exchanges_) {
    messages.push_back({{"role", "user"}, {"content", exchange.question}});
    messages.push_back({{"role", "assistant"}, {"content", exchange.answer.text}});
    if (exchange.answer.end != AnswerEnd::Complete) messages.back()["stopped"] = true;
    if (!model_.keeps_turns) end_line();
  }
  if (model_.keeps_turns) end_line();
  write_file_atomically(file, lines);
  saved_.insert(file);
  note_(fmt::format("Saved {} question{} with {} in {}.", exchanges_.size(),
                    exchanges_.size() == 1 ? "" : "s",
                    exchanges_.size() == 1 ? "its answer" : "their answers", file));
}

}  // namespace snug::use
