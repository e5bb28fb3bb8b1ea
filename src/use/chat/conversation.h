// A conversation with a model, entry by entry: tells questions from commands, chooses the earlier
// turns that the model sees, and continues answers that were cut off. Independent of terminal and
// model.
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

// What ended an answer: the model, the limit of tokens, or the user.
enum class AnswerEnd { Complete, Limit, Stopped };

struct ChatAnswer {
  std::string text;
  std::vector<int32_t> ids;
  AnswerEnd end = AnswerEnd::Complete;
};

// What a conversation needs of a model.
struct ChatModel {
  bool keeps_turns = true;  // false: each question is asked without the earlier ones
  bool is_decoder = true;   // answers share positions with prompts and can be continued
  int64_t positions = 0;    // tokens that fit into the model
  std::function<Prompt(std::span<const tokenizer::Message>)> prompt;  // the last turn is a question
  // Prints the answer as it is generated. `begun`: its tokens so far; `number` counts the calls.
  std::function<ChatAnswer(const Prompt& prompt, const std::vector<int32_t>& begun,
                           uint64_t number)>
      answer;
};

struct ConversationOptions {
  std::string system;  // the system message; empty: the template's own
  int64_t max_new_tokens = 512;
};

class Conversation {
 public:
  // `note` prints a line that is not part of an answer.
  Conversation(ChatModel model, ConversationOptions options,
               std::function<void(const std::string&)> note);

  // Takes a question or a command such as /help. Returns false when the chat ends. After a
  // UserError the chat can continue; the question is dropped.
  bool take(const std::string& entry);

 private:
  struct Exchange {
    std::string question;
    ChatAnswer answer = {};
  };

  void ask(const std::string& question);
  void answer_last();
  Prompt fitting_prompt();
  bool has_room() const;  // to continue the last answer
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
  size_t first_ = 0;           // the oldest exchange that the model still sees
  int64_t prompt_tokens_ = 0;  // of the last prompt
  uint64_t num_answers_ = 0;
  std::set<std::filesystem::path> saved_;  // files that this conversation wrote and may overwrite
};

}  // namespace snug::use
