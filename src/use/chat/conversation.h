// A conversation with a model, entry by entry: which one is a question and which a command, what
// the model is shown of what was said before, how an answer that was cut off goes on. Knows neither
// a terminal nor a model.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "text/tokenizer/tokenizer.h"
#include "use/generate/next_logits.h"

namespace snug::use {

// What ended an answer: the model itself, the number of tokens, or the person.
enum class AnswerEnd { Complete, Limit, Stopped };

struct ChatAnswer {
  std::string text;
  std::vector<int32_t> ids;
  AnswerEnd end = AnswerEnd::Complete;
};

// What a conversation asks of a model.
struct ChatModel {
  bool keeps_turns = true;  // false: each question is asked by itself
  bool is_decoder = true;   // answers share the positions with their prompts, and can go on
  int64_t positions = 0;    // tokens that the model can see
  std::function<Prompt(std::span<const tokenizer::Message>)> prompt;  // the last turn: a question
  // Shows the answer as it comes. `begun`: what is there of it; `number` counts the calls.
  std::function<ChatAnswer(const Prompt& prompt, const std::vector<int32_t>& begun,
                           uint64_t number)>
      answer;
};

struct ConversationOptions {
  std::string system;  // the system's turn; empty: the template's own
  int64_t max_new_tokens = 512;
};

class Conversation {
 public:
  // `note` shows a line that is not the model's.
  Conversation(ChatModel model, ConversationOptions options,
               std::function<void(const std::string&)> note);

  // A question, or a command such as /help. False: the conversation is over. After a UserError it
  // can go on, without the question.
  bool take(const std::string& entry);

 private:
  struct Exchange {
    std::string question;
    ChatAnswer answer = {};
  };

  void ask(const std::string& question);
  void answer_last();
  Prompt fitting_prompt();
  bool has_room() const;  // for the last answer to go on
  std::vector<tokenizer::Message> turns() const;
  void note_end(size_t new_tokens) const;
  void more();
  void clear();
  void set_system(const std::string& text);
  void save(const std::string& file);

  ChatModel model_;
  ConversationOptions options_;
  std::function<void(const std::string&)> note_;
  std::vector<Exchange> exchanges_;
  size_t first_ = 0;           // the oldest exchange that the model is still shown
  int64_t prompt_tokens_ = 0;  // of the last prompt
  uint64_t num_answers_ = 0;
  std::set<std::filesystem::path> saved_;  // files that this conversation may write over
};

}  // namespace snug::use
