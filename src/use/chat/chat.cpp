// `snug chat`: reads lines from a terminal or a pipe and prints answers as they are generated.
// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>

#include <iostream>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/prompts.h"
#include "engine/host.h"
#include "engine/language_model.h"
#include "use/chat/conversation.h"
#include "use/chat/line_input.h"
#include "use/commands.h"
#include "use/generate/prompts.h"
#include "use/generate/text_generator.h"

namespace snug::use {
namespace {

volatile sig_atomic_t stop_is_wished = 0;

void wish_stop(int signal_number) {
  if (stop_is_wished == 0) {
    stop_is_wished = 1;
    return;
  }
  ::signal(signal_number, SIG_DFL);
  ::raise(signal_number);
}

// While this object exists, Ctrl-C stops the answer instead of the program; a second one ends the
// program. With line editing it exists during the whole chat, because Ctrl-C pressed just before an
// answer starts would end the program (at the prompt itself, Ctrl-C is not a signal).
class AnswerStop {
 public:
  AnswerStop() {
    struct sigaction action {};
    action.sa_handler = wish_stop;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    ::sigaction(SIGINT, &action, nullptr);
  }
  ~AnswerStop() { ::signal(SIGINT, SIG_DFL); }
  AnswerStop(const AnswerStop&) = delete;
  AnswerStop& operator=(const AnswerStop&) = delete;
};

// Reads questions and commands, one at a time.
class Entries {
 public:
  bool is_interactive() const { return is_interactive_; }
  bool can_edit() const { return can_edit_; }

  // std::nullopt at the end. Empty lines are passed over. A line that ends in a backslash continues
  // on the next one.
  std::optional<std::string> next() {
    std::string entry;
    for (bool goes_on = false;;) {
      const LineInput::Typed typed = read(goes_on ? ". " : "> ");
      if (typed.outcome == LineInput::Outcome::Cleared) {
        entry.clear();
        goes_on = false;
        continue;
      }
      if (typed.outcome == LineInput::Outcome::End && !goes_on) return std::nullopt;
      entry += typed.text;
      goes_on = typed.outcome == LineInput::Outcome::Line && entry.ends_with('\\');
      if (goes_on) {
        entry.back() = '\n';
        continue;
      }
      if (entry.empty()) continue;
      if (can_edit_) input_.remember(entry);
      return entry;
    }
  }

 private:
  LineInput::Typed read(const std::string& prompt) {
    if (can_edit_) return input_.read(prompt);
    if (is_interactive_) print_piece(prompt);
    LineInput::Typed typed{.outcome = LineInput::Outcome::Line};
    if (!std::getline(std::cin, typed.text)) return {};
    if (typed.text.ends_with('\r')) typed.text.pop_back();
    return typed;
  }

  const bool is_interactive_ = ::isatty(STDIN_FILENO) == 1;
  const bool can_edit_ = LineInput::is_possible();
  LineInput input_;
};

// On standard output in a terminal, otherwise on standard error, since standard output holds only
// answers.
void print_note(const std::string& text, bool is_interactive) {
  if (is_interactive)
    print_piece(text + "\n");
  else
    std::cerr << printable_lines(text) << "\n";
}

// Why the model does not see earlier turns; empty if it does.
std::string words_on_style(const data::PromptStyle& style, const recipe::GenerateOptions& options,
                           const engine::LanguageModel& lm, const engine::LoadedAdapter* adapter) {
  if (style.is_chat()) return "";
  std::string why;
  if (options.prompt_style == "auto")
    why =
        prompts_of_training(lm, adapter) ? ", as in training" : ": the model has no chat template";
  return "The model sees each question without the earlier ones (prompt style " + style.name() +
         why + ").";
}

ChatModel chat_model(const engine::LanguageModel& lm, const data::TextEncoder& encoder,
                     const data::PromptStyle& style, TextGenerator& generator,
                     const recipe::GenerateOptions& options, bool is_interactive) {
  const auto prompt = [&](std::span<const tokenizer::Message> turns) {
    const std::string text =
        style.is_chat()
            ? style.render(turns, /*add_generation_prompt=*/true)
            : style.prompt(
                  {.instruction = turns.back().content, .input = "", .output = "", .messages = {}});
    return text_prompt(*lm.model, encoder, text);
  };
  const auto answer = [&, is_interactive](const Prompt& given, const std::vector<int32_t>& begun,
                                          uint64_t number) {
    GenerationOptions how = generation_options(options.max_new_tokens,
                                               {.temperature = options.temperature,
                                                .top_k = options.top_k,
                                                .top_p = options.top_p,
                                                .seed = options.seed + number},
                                               options.beams, 1);
    if (is_interactive) how.stop = [] { return stop_is_wished != 0; };
    const Generation made = generator.generate({.prompt = given,
                                                .options = how,
                                                .stops = options.stop,
                                                .on_text = print_piece,
                                                .begun = begun});
    print_piece("\n");
    const bool is_stopped = is_interactive && stop_is_wished != 0;
    return ChatAnswer{.text = made.text,
                      .ids = made.ids,
                      .end = made.ended   ? AnswerEnd::Complete
                             : is_stopped ? AnswerEnd::Stopped
                                          : AnswerEnd::Limit};
  };
  return {.keeps_turns = style.is_chat(),
          .is_decoder = !lm.model->reads().source,
          .positions = lm.model->dimensions().max_positions,
          .prompt = prompt,
          .answer = answer};
}

}  // namespace

void chat(const recipe::GenerateOptions& options) {
  const engine::Host host =
      engine::prepare_host(options.memory_budget, options.num_threads, options.accelerator);
  const engine::LanguageModel lm = engine::open_language_model(
      options.checkpoint_dir, host.device,
      {.precision = options.precision, .quantize = options.quantize, .adapters = options.adapters});
  if (lm.adapters.size() > 1)
    throw UserError("chat takes one adapter, and {} are given; snug generate takes several",
                    lm.adapters.size());
  const engine::LoadedAdapter* adapter = lm.adapters.empty() ? nullptr : &lm.adapters.front();
  const data::TextEncoder any = data::make_encoder(*lm.tokenizer);
  const data::PromptStyle style = style_of_prompts(options.prompt_style, lm, adapter, any);
  const data::TextEncoder encoder = style.encoder_of_prompts(any);
  TextGenerator generator(*lm.executor, *lm.model, *lm.tokenizer, lm.precision.compute);
  Entries entries;
  const bool is_interactive = entries.is_interactive();
  const auto note = [&](const std::string& text) { print_note(text, is_interactive); };
  if (const std::string words = words_on_style(style, options, lm, adapter); !words.empty())
    note(words);
  const std::string system = system_message(options.sys_prompt, style, lm, adapter);
  if (!style.is_chat() && !system.empty())
    warn("sys_prompt has no effect with prompt style {}", style.name());
  if (!system.empty() && !options.sys_prompt)
    note("System message, as in all rows of the training: " + system +
         "\n/system TEXT gives another.");
  if (is_interactive) note("/exit ends the chat; /help lists the commands.");
  Conversation conversation(chat_model(lm, encoder, style, generator, options, is_interactive),
                            {.system = system, .max_new_tokens = options.max_new_tokens}, note);
  std::optional<AnswerStop> all_along, while_answering;
  if (entries.can_edit()) all_along.emplace();
  while (const std::optional<std::string> entry = entries.next()) {
    if (is_interactive && !entries.can_edit()) while_answering.emplace();
    try {
      if (!conversation.take(*entry)) break;
    } catch (const UserError& error) {
      // A user can try again; a file of questions fails.
      if (!is_interactive) throw;
      note(error.what());
    }
    while_answering.reset();
    stop_is_wished = 0;
  }
}

}  // namespace snug::use
