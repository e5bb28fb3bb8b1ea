// SPDX-License-Identifier: Apache-2.0
#include "use/modelfile.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/log.h"

namespace snug::use {
namespace {

using data::Message;
using Conversation = std::vector<Message>;

// What a chat template writes around a message.
struct Turn {
  std::string before, after;
};

struct Turns {
  std::string begin;           // before a conversation without a system message
  std::optional<Turn> system;  // none: the template has no turn of its own for it
  Turn user, assistant;
  std::string open;  // the start of an answer

  std::string write(const Conversation& messages, bool opens) const {
    std::string text = messages.front().role == "system" ? "" : begin;
    for (const Message& message : messages) {
      const Turn& turn = message.role == "system" ? *system
                         : message.role == "user" ? user
                                                  : assistant;
      text += turn.before + message.content + turn.after;
    }
    return text + (opens ? open : "");
  }
};

// The text around each of `contents`, which occur in this order; nothing if one does not.
std::optional<std::vector<std::string>> around(std::string_view text,
                                               std::span<const Message> messages) {
  std::vector<std::string> pieces;
  for (const Message& message : messages) {
    const size_t at = text.find(message.content);
    if (at == text.npos) return std::nullopt;
    pieces.emplace_back(text.substr(0, at));
    text.remove_prefix(at + message.content.size());
  }
  pieces.emplace_back(text);
  return pieces;
}

std::optional<std::string> without_start(const std::string& text, const std::string& start) {
  return text.starts_with(start) ? std::optional(text.substr(start.size())) : std::nullopt;
}

std::optional<std::string> without_end(const std::string& text, const std::string& end) {
  return text.ends_with(end) ? std::optional(text.substr(0, text.size() - end.size()))
                             : std::nullopt;
}

const Message kSystem{"system", "Answer-briefly"}, kFirst{"user", "first-question"},
    kAnswer{"assistant", "first-answer"}, kSecond{"user", "second-question"};

bool writes_alike(const Turns& turns, const data::PromptStyle& style,
                  const std::vector<Conversation>& conversations) {
  for (const Conversation& messages : conversations)
    for (const bool opens : {false, true})
      if (turns.write(messages, opens) != style.render(messages, opens)) return false;
  return true;
}

// Some templates refuse system messages, others write them into the first question.
std::optional<Turn> find_system_turn(Turns turns, const data::PromptStyle& style) {
  try {
    const Conversation messages{kSystem, kFirst};
    const auto pieces = around(style.render(messages, false), messages);
    if (!pieces) return std::nullopt;
    const auto after = without_end((*pieces)[1], turns.user.before);
    if (!after) return std::nullopt;
    turns.system = Turn{(*pieces)[0], *after};
    const bool alike =
        writes_alike(turns, style, {{kSystem, kFirst}, {kSystem, kFirst, kAnswer, kSecond}});
    return alike ? turns.system : std::nullopt;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

// Nothing if the template writes conversations in any other way than message by message.
std::optional<Turns> take_apart(const data::PromptStyle& style) {
  const auto pieces_of = [&](const Conversation& messages, bool opens) {
    return around(style.render(messages, opens), messages);
  };
  const auto one = pieces_of({kFirst}, false), opened = pieces_of({kFirst}, true);
  const auto two = pieces_of({kFirst, kAnswer}, false);
  const auto three = pieces_of({kFirst, kAnswer, kSecond}, false);
  if (!one || !opened || !two || !three) return std::nullopt;
  Turns turns;
  turns.user.after = one->back();
  turns.assistant.after = two->back();
  const auto open = without_start(opened->back(), turns.user.after);
  const auto before_answer = without_start((*three)[1], turns.user.after);
  const auto before_user = without_start((*three)[2], turns.assistant.after);
  if (!open || !before_answer || !before_user) return std::nullopt;
  const auto begin = without_end(one->front(), *before_user);
  if (!begin) return std::nullopt;
  turns.begin = *begin;
  turns.open = *open;
  turns.assistant.before = *before_answer;
  turns.user.before = *before_user;
  if (!writes_alike(turns, style, {{kFirst}, {kFirst, kAnswer, kSecond}})) return std::nullopt;
  turns.system = find_system_turn(turns, style);
  return turns;
}

// In the language of Go's templates, on one line but for the line breaks of the prompt itself.
std::string go_template(const Turns& turns, const std::string& bos) {
  const auto without_bos = [&](const std::string& text) {
    return without_start(text, bos).value_or(text);
  };
  const std::string begin = without_bos(turns.begin);
  std::string text =
      begin.empty() || !turns.system ? begin : "{{ if not .System }}" + begin + "{{ end }}";
  // Where every question begins with it, the first does not.
  const bool repeats = !bos.empty() && turns.user.before.starts_with(bos);
  const std::string user =
      (repeats ? "{{ if $i }}" + bos + "{{ end }}" : "") + without_bos(turns.user.before);
  text += "{{ range $i, $_ := .Messages }}{{ $last := eq (len (slice $.Messages $i)) 1 }}";
  if (turns.system)
    text += R"({{ if eq .Role "system" }})" + without_bos(turns.system->before) + "{{ .Content }}" +
            turns.system->after + "{{ end }}";
  text += R"({{ if eq .Role "user" }})" + user + "{{ .Content }}" + turns.user.after + "{{ end }}";
  // Where the conversation ends with the start of an answer, the model goes on there.
  text += R"({{ if eq .Role "assistant" }})" + turns.assistant.before +
          "{{ .Content }}{{ if not $last }}" + turns.assistant.after + "{{ end }}{{ end }}";
  if (!turns.open.empty())
    text += R"({{ if and $last (ne .Role "assistant") }})" + turns.open + "{{ end }}";
  text += "{{ end }}";
  return text;
}

// Whether the text may stand in a Modelfile's TEMPLATE as it is.
bool is_plain(const Turns& turns) {
  const std::string all =
      turns.write({kFirst, kAnswer}, true) + (turns.system ? turns.write({kSystem}, false) : "");
  return all.find("{{") == all.npos && all.find("\"\"\"") == all.npos;
}

std::string stop_line(const std::string& stop) { return "PARAMETER stop \"" + stop + "\"\n"; }

// What ends an answer by the template itself, such as <|im_end|>.
std::string end_of_answer(const Turns& turns) {
  const std::string& after = turns.assistant.after;
  const size_t begin = after.find_first_not_of(" \n"), end = after.find_last_not_of(" \n");
  return begin == after.npos ? "" : after.substr(begin, end + 1 - begin);
}

constexpr const char* kNoTemplate =
    "the model's chat template does not write conversations message by message, so the Modelfile "
    "has no TEMPLATE; ollama takes the GGUF file's own if it knows it";
constexpr const char* kNoSystem =
    "the model's chat template has no turn for system messages; ollama leaves them out";

constexpr const char* kQuotedSystem =
    "the training's system message has three quotation marks in a row, which end a text in a "
    "Modelfile, so it is left out; give ollama another with /set system";

std::string comment_and_warn(const char* text) {
  warn("{}", text);
  return "# " + std::string(text) + "\n";
}

}  // namespace

std::string modelfile(const data::PromptStyle& style, const ModelfileOptions& options) {
  std::string text, prompt, system = options.system;
  for (const std::string& file : options.gguf) text += "FROM ./" + file + "\n";
  std::vector<std::string> stops = options.stops;
  if (style.is_chat()) {
    const auto turns = take_apart(style);
    if (!turns || !is_plain(*turns)) {
      text += comment_and_warn(kNoTemplate);
    } else {
      if (!turns->system) {
        text += comment_and_warn(kNoSystem);
        system.clear();
      }
      prompt = go_template(*turns, options.bos);
      if (const std::string end = end_of_answer(*turns); end.find('\n') == end.npos)
        stops.push_back(end);
    }
  } else {
    prompt = style.prompt({.instruction = "{{ .Prompt }}"});
  }
  if (system.find("\"\"\"") != std::string::npos)
    text += comment_and_warn(kQuotedSystem);
  else if (!system.empty())
    text += "SYSTEM \"\"\"" + system + "\"\"\"\n";
  if (!prompt.empty()) text += "TEMPLATE \"\"\"" + prompt + "\"\"\"\n";
  for (size_t i = 0; i < stops.size(); ++i) {
    const bool is_new = std::find(stops.begin(), stops.begin() + i, stops[i]) == stops.begin() + i;
    if (!stops[i].empty() && is_new) text += stop_line(stops[i]);
  }
  return text;
}

}  // namespace snug::use
