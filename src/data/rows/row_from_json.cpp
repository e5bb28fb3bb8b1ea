// SPDX-License-Identifier: Apache-2.0
#include "data/rows/row_from_json.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "data/pictures/picture_text.h"
#include "data/rows/label_rows.h"
#include "data/rows/preference_rows.h"
#include "data/rows/rated_rows.h"
#include "data/rows/row_pictures.h"

namespace snug::data {
namespace {

using json = nlohmann::ordered_json;

constexpr const char* kSystemKeys[] = {"system", "system_prompt"};
constexpr const char* kCallKeys[] = {"tool_calls", "function_call"};
// Whether an answer is learnt: OpenAI's and Mistral's "weight", axolotl's "train" and "training",
// ms-swift's "loss" and others'.
constexpr const char* kLossKeys[] = {"weight", "train",     "training", "loss",
                                     "learn",  "loss_mask", "trainable"};
// What snug reads of a turn itself, beside kLossKeys; a template gets all else.
constexpr const char* kTurnKeys[] = {"role", "content", "from", "value", "images", "image"};

// What there is, and which of it is null and so as good as missing.
std::string columns_of(const json& object) {
  std::vector<std::string> names;
  for (const auto& item : object.items()) {
    if (names.size() == 20) return fmt::format("{}, …", fmt::join(names, ", "));
    names.push_back(shortened(item.key(), 60) + (item.value().is_null() ? " (null)" : ""));
  }
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

// ShareGPT's and ms-swift's names for the parties of a chat.
std::string role_of(const std::string& given) {
  std::string name(trimmed(given));
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char* known : {"user", "assistant", "system", "tool", "developer"})
    if (name == known) return name;
  if (name == "human") return "user";
  for (const char* assistant :
       {"gpt", "bot", "chatbot", "model", "function_call", "tool_call", "tool_calls"})
    if (name == assistant) return "assistant";
  for (const char* tool : {"observation", "tool_response", "tool_responses", "function_response"})
    if (name == tool) return "tool";
  return given;
}

// A turn of theirs whose text is a call, or a list of calls.
bool is_call_role(const std::string& name) {
  return name == "function_call" || name == "tool_call" || name == "tool_calls";
}

// Arrow gives each of a column's objects the keys of all, null where they are missing.
json without_nulls(const json& value) {
  if (!value.is_structured()) return value;
  json kept = value.is_array() ? json::array() : json::object();
  for (const auto& item : value.items()) {
    if (value.is_array())
      kept.push_back(without_nulls(item.value()));
    else if (!item.value().is_null())
      kept[item.key()] = without_nulls(item.value());
  }
  return kept;
}

// [], {} or "".
bool is_empty(const json& value) {
  return value.empty() || (value.is_string() && value.get_ref<const std::string&>().empty());
}

std::string text_from(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

bool check_depth(int depth, json::parse_event_t, const json&) {
  if (depth > kMaxDepth) throw UserError("brackets nest deeper than {} levels", kMaxDepth);
  return true;
}

// A call as templates take it: {"type": "function", "function": {"name", "arguments"}}.
std::optional<json> call_from(const json& given) {
  if (!given.is_object()) return std::nullopt;
  const json& function = given.contains("function") ? given["function"] : given;
  if (!function.is_object() || !function.contains("name")) return std::nullopt;
  json call = given.contains("function") ? given : json{{"function", function}};
  if (!call.contains("type")) call["type"] = "function";
  json& own = call["function"];
  // Chat templates write the arguments of every call: those of one without any are {}.
  if (!own.contains("arguments"))
    own["arguments"] = own.contains("parameters") ? own["parameters"] : json::object();
  return call;
}

// The calls that a text is; none where it is no such text.
json calls_in(const std::string& text) {
  const json parsed = json::parse(text, check_depth, false);
  json calls = json::array();
  for (const json& given : parsed.is_array() ? parsed : json::array({parsed})) {
    std::optional<json> call = call_from(given);
    if (!call) return json::array();
    calls.push_back(std::move(*call));
  }
  return calls;
}

// The tools that a row's model may call: a list, or its text, as tables hold it.
std::string tools_of(const json& object, const std::string& where) {
  const json* tools = field(object, "tools");
  if (tools == nullptr || (tools->is_string() && tools->get_ref<const std::string&>().empty()))
    return "";
  json parsed;
  if (tools->is_string()) {
    const auto& text = tools->get_ref<const std::string&>();
    parsed = json::parse(text, check_depth, false);
    tools = &parsed;
  }
  if (!tools->is_array())
    throw UserError(
        "{}: \"tools\" must be a list of tools, or such a list as JSON text; leave it out where "
        "there "
        "are none",
        where);
  json list = without_nulls(*tools);
  for (json& tool : list) {
    if (!tool.is_string()) continue;
    json described = json::parse(tool.get_ref<const std::string&>(), check_depth, false);
    if (described.is_object()) tool = std::move(described);
  }
  return list.empty() ? "" : text_from(list);
}

bool is_learnt(const json& turn, const std::string& place) {
  for (const char* key : kLossKeys) {
    const json* mark = field(turn, key);
    if (mark == nullptr) continue;
    if (mark->is_boolean()) return mark->get<bool>();
    if (*mark == 0 || *mark == 1) return *mark == 1;
    throw UserError("{}: \"{}\" is {}; write 0 or false for an answer without loss, 1 or true else",
                    place, key, shortened(mark->dump(), 40));
  }
  return true;
}

constexpr const char* kUserKeys[] = {"user", "human", "question", "prompt", "instruction"};
constexpr const char* kAssistantKeys[] = {"assistant", "gpt",      "bot",
                                          "answer",    "response", "output"};

// A question and its answer as one turn: [question, answer] or {"user": …, "assistant": …}.
bool add_pair(const json& turn, Row& row, const std::string& place) {
  const json *question = nullptr, *answer = nullptr;
  if (turn.is_array() && turn.size() == 2) {
    question = &turn[0];
    answer = &turn[1];
  } else if (turn.is_object()) {
    for (const char* key : kUserKeys)
      if (question == nullptr) question = field(turn, key);
    for (const char* key : kAssistantKeys)
      if (answer == nullptr) answer = field(turn, key);
  }
  if (question == nullptr || answer == nullptr) return false;
  row.messages.push_back({"user", content_of(*question, "question", row, place)});
  row.messages.push_back({"assistant", content_of(*answer, "answer", row, place)});
  return true;
}

bool is_call_key(const std::string& key) {
  return std::ranges::find(kCallKeys, key) != std::end(kCallKeys);
}

// The keys that only a template reads, without those that are null, which tables give every row,
// and without calls that are none.
json more_of(const json& turn) {
  json more = json::object();
  for (const auto& item : turn.items()) {
    const bool is_own = std::ranges::find(kTurnKeys, item.key()) != std::end(kTurnKeys) ||
                        std::ranges::find(kLossKeys, item.key()) != std::end(kLossKeys);
    const bool is_nothing =
        item.value().is_null() || (is_call_key(item.key()) && is_empty(item.value()));
    if (!is_own && !is_nothing) more[item.key()] = without_nulls(item.value());
  }
  return more;
}

// Checks "tool_calls", a list or the text of one.
void check_calls(json& more, const std::string& place) {
  const auto calls = more.find("tool_calls");
  if (calls == more.end() || calls->is_array()) return;
  if (calls->is_string())
    if (json list = json::parse(calls->get<std::string>(), nullptr, /*allow_exceptions=*/false);
        list.is_array()) {
      *calls = std::move(list);
      return;
    }
  throw UserError("{}: \"tool_calls\" must be a list of calls, but is {} {}", place,
                  calls->is_object() ? "an" : "a", calls->type_name());
}

// ms-swift writes each call of one answer as a turn of its own.
bool extends_calls(Row& row, const json& calls, bool is_swift, const std::string& text) {
  if (!is_swift || row.messages.empty() || !row.messages.back().calls_are_content) return false;
  Message& last = row.messages.back();
  json more = json::parse(last.more);
  for (const json& call : calls) more["tool_calls"].push_back(call);
  last.more = text_from(more);
  last.content += "\n" + text;
  return true;
}

void add_turn(const json& turn, size_t number, Row& row, const Columns& columns,
              const std::string& where) {
  std::vector<Message>& turns = row.messages;
  if (turn.is_string()) {
    turns.push_back({turns.size() % 2 == 0 ? "user" : "assistant", turn.get<std::string>()});
    return;
  }
  const std::string place = fmt::format("{}, turn {}", where, number + 1);
  const json *role = nullptr, *content = nullptr;
  if (turn.is_object()) {
    role = field(turn, "role");
    content = field(turn, "content");
    if (!role) role = field(turn, "from");
    if (!content) content = field(turn, "value");
  }
  const bool calls = turn.is_object() && std::ranges::any_of(kCallKeys, [&](const char* key) {
                       const json* found = field(turn, key);
                       return found != nullptr && !is_empty(*found);
                     });
  row.needs_template |= calls;
  const bool thinks =
      turn.is_object() && std::ranges::any_of(tokenizer::kThoughtKeys, [&](const char* key) {
        return field(turn, key) != nullptr;
      });
  if (role != nullptr && (content != nullptr || calls || thinks)) {
    const std::string name = text_of(*role, "role", place);
    Message message{role_of(name), content ? turn_text(turn, *content, row, columns, place) : "",
                    is_learnt(turn, place)};
    json more = more_of(turn);
    check_calls(more, place);
    if (content == nullptr) more["content"] = nullptr;
    if (is_call_role(name) && !more.contains("tool_calls")) {
      json found = calls_in(message.content);
      message.calls_are_content = !found.empty();
      if (!found.empty() && extends_calls(row, found, name == "tool_call", message.content)) return;
      if (!found.empty()) more["tool_calls"] = std::move(found);
    }
    if (!more.empty()) message.more = text_from(more);
    turns.push_back(std::move(message));
    return;
  }
  if (add_pair(turn, row, place)) return;
  if (!turn.is_object())
    throw UserError("{}: a turn is {{\"role\": …, \"content\": …}}, but this is {} {}", place,
                    turn.is_array() ? "an" : "a", turn.type_name());
  throw UserError("{}: a turn needs \"role\" and \"content\"; found: {}", place, columns_of(turn));
}

// The first question with an answer to learn, for styles that know no turns; a system text goes in
// front.
void fill_first_exchange(Row& row, const std::string& where) {
  std::string system;
  const Message* question = nullptr;
  for (const Message& turn : row.messages) {
    if (turn.role == "system") system += turn.content + "\n\n";
    if (turn.role == "user") question = &turn;
    if (turn.role != "assistant" || turn.in_prompt || !question) continue;
    row.instruction = system + question->content;
    row.output = turn.content;
    return;
  }
  throw UserError("{}: the chat has no \"user\" turn answered by an \"assistant\" turn", where);
}

void add_turns(const json& turns, std::string_view column, Row& row, const Columns& columns,
               const std::string& where) {
  if (!turns.is_array())
    throw UserError("{}: \"{}\" must be an array of turns, but is {} {}", where, column,
                    turns.is_object() ? "an" : "a", turns.type_name());
  for (size_t i = 0; i < turns.size(); ++i) add_turn(turns[i], i, row, columns, where);
}

// What stands beside the turns for the model to know.
std::string system_of(const json& object, const std::string& where) {
  for (const char* key : kSystemKeys)
    if (const json* system = field(object, key)) return text_of(*system, key, where);
  return "";
}

void put_system_first(const std::string& system, Row& row) {
  if (system.empty()) return;
  if (!row.messages.empty() && row.messages.front().role == "system") return;
  row.messages.insert(row.messages.begin(), {"system", system});
}

Row chat_row(const json& object, const json& turns, std::string_view column, const Columns& columns,
             const std::string& where) {
  Row row;
  add_turns(turns, column, row, columns, where);
  place_pictures(object, row, columns, where);
  drop_unanswered(row);
  put_system_first(system_of(object, where), row);
  row.tools = tools_of(object, where);
  fill_first_exchange(row, where);
  return row;
}

// A question with a system text, with what was said before it ("history": pairs) or with pictures
// is a chat.
Row with_what_comes_before(Row row, const json& object, const Columns& columns,
                           const std::string& where) {
  const std::string system = system_of(object, where);
  const json* history = field(object, "history");
  const bool has_history = history != nullptr && history->is_array() && !history->empty();
  const bool looks = columns.pictures || count_marks(row.instruction) + count_marks(row.input) > 0;
  const bool has_pictures = looks && !pictures_beside(object, columns, where).empty();
  if (has_pictures && columns.pictures) row.kind = RowKind::Question;
  if (row.kind != RowKind::Question || (system.empty() && !has_history && !has_pictures))
    return row;
  if (has_history) add_turns(*history, "history", row, columns, where);
  row.messages.push_back(
      {"user", row.input.empty() ? row.instruction : row.instruction + "\n\n" + row.input});
  row.messages.push_back({"assistant", row.output});
  if (has_pictures || !row.pictures.empty()) place_pictures(object, row, columns, where);
  put_system_first(system, row);
  row.input.clear();
  fill_first_exchange(row, where);
  return row;
}

// Columns in which people keep a question and its answer.
struct PairColumns {
  const char *question, *answer;
  RowKind kind = RowKind::Question;
};
constexpr PairColumns kPairs[] = {
    {"prompt", "completion", RowKind::Completion},
    {"prompt", "response"},
    {"instruction", "response"},
    {"instruction", "completion"},
    {"instruction", "answer"},
    {"question", "answer"},
    {"question", "response"},
    {"query", "response"},
    {"query", "answer"},
    {"problem", "solution"},
    {"input", "output"},
    {"input", "response"},
};
constexpr const char* kInputKeys[] = {"input", "context"};

// A question and its answer, or turns that end in an answer and its turns: only those of the answer
// are learnt.
Row pair_row(const json& object, const PairColumns& pair, const Columns& columns,
             const std::string& where) {
  const json &question = *field(object, pair.question), &answer = *field(object, pair.answer);
  Row row;
  if (question.is_array() && answer.is_array()) {
    add_turns(question, pair.question, row, columns, where);
    for (Message& turn : row.messages) turn.in_prompt = true;
    add_turns(answer, pair.answer, row, columns, where);
    place_pictures(object, row, columns, where);
    put_system_first(system_of(object, where), row);
    row.tools = tools_of(object, where);
    fill_first_exchange(row, where);
    return row;
  }
  row.kind = pair.kind;
  row.instruction = text_of(question, pair.question, where);
  row.output = text_of(answer, pair.answer, where);
  for (const char* key : kInputKeys)
    if (const json* input = field(object, key); input != nullptr && input != &question)
      row.input = text_of(*input, key, where);
  return with_what_comes_before(std::move(row), object, columns, where);
}

[[noreturn]] void refuse_objective(const std::string& where, const std::string& column,
                                   const char* objective, const char* remedy) {
  throw UserError("{}: the column \"{}\" is made for {}; {}", where, shortened(column, 60),
                  objective, remedy);
}

// Rows made for another objective would teach the wrong thing without a word.
void check_objective(const json& object, const std::string& where) {
  for (const auto& item : object.items()) {
    const json& value = item.value();
    const bool says = value.is_string() || value.is_structured();
    if (is_preference_column(item.key()) && says && !is_empty(value))
      refuse_objective(
          where, item.key(), "preferences",
          "snug finetune learns from them with --objective dpo (or ipo, hinge, orpo, "
          "simpo, cpo, kto); to learn the better answers alone, keep them as \"output\" or "
          "as the last turn of "
          "\"messages\", and leave the others out");
  }
  const auto has_any = [&](const auto& keys) {
    return std::ranges::any_of(keys,
                               [&](const char* key) { return field(object, key) != nullptr; });
  };
  const bool is_answered = has_any(kChatKeys) || has_any(kAnswerKeys);
  for (const std::string& key : rating_columns())
    if (const json* verdict = field(object, key); verdict && is_verdict(*verdict) && is_answered)
      refuse_objective(where, key, "answers rated good or bad (KTO)",
                       "snug finetune learns from them with --objective kto, and would learn the "
                       "bad ones too with this one; to learn the good answers alone, keep their "
                       "rows and leave the column out");
  const json *text = field(object, "text"), *label = field(object, "label");
  if (text != nullptr && label != nullptr && !label->is_structured() && !is_answered)
    refuse_objective(
        where, "label", "classification",
        "snug finetune learns it with --objective classification; to learn to answer "
        "with the class, write it as \"output\" beside the text as \"instruction\"; to "
        "learn the texts, leave the column out");
}

void note_unread(const json& object, const Columns& columns) {
  constexpr size_t kMost = 50;
  if (columns.unread == nullptr) return;
  const std::vector<std::string> read = row_columns(columns);
  for (const auto& item : object.items())
    if (columns.unread->size() < kMost && std::ranges::find(read, item.key()) == read.end())
      columns.unread->insert(shortened(item.key(), 60));
}

}  // namespace

std::optional<json> turns_in(const json& value) {
  if (!value.is_string()) return std::nullopt;
  json turns = json::parse(value.get_ref<const std::string&>(), check_depth, false);
  return turns.is_array() ? std::optional(std::move(turns)) : std::nullopt;
}

bool is_answered(const json& object, const Columns& columns) {
  const auto has_both = [&](const PairColumns& pair) {
    return field(object, pair.question) != nullptr && field(object, pair.answer) != nullptr;
  };
  return (field(object, columns.instruction) != nullptr &&
          field(object, columns.output) != nullptr) ||
         std::ranges::any_of(kPairs, has_both);
}

std::optional<Row> chat_to_sort(const json& object, const Columns& columns,
                                const std::string& where) {
  for (const char* key : kChatKeys) {
    const json* turns = field(object, key);
    if (turns == nullptr) continue;
    const std::optional<json> parsed = turns_in(*turns);
    Row row;
    add_turns(parsed ? *parsed : *turns, key, row, columns, where);
    if (row.messages.empty()) throw UserError("{}: \"{}\" has no turns", where, key);
    put_system_first(system_of(object, where), row);
    row.tools = tools_of(object, where);
    return row;
  }
  return std::nullopt;
}

Row row_from_json(const json& object, const Columns& columns, const std::string& where) {
  if (columns.preferences) {
    note_unread(object, columns);
    Row row = preference_from_json(object, columns, where);
    if (columns.margins) row.value = margin_of(object, where);
    return row;
  }
  if (columns.classes) {
    note_unread(object, columns);
    return labelled_from_json(object, columns, where);
  }
  if (columns.ratings) {
    note_unread(object, columns);
    return rated_from_json(object, columns, where);
  }
  check_objective(object, where);
  note_unread(object, columns);
  const json* output = field(object, columns.output);
  const json* instruction = field(object, columns.instruction);
  if (output && instruction) {
    Row row;
    row.instruction = text_of(*instruction, columns.instruction, where);
    row.output = text_of(*output, columns.output, where);
    if (const json* input = field(object, columns.input))
      row.input = text_of(*input, columns.input, where);
    return with_what_comes_before(std::move(row), object, columns, where);
  }
  if (!output)
    for (const char* key : kChatKeys)
      if (const json* turns = field(object, key)) {
        const std::optional<json> parsed = turns_in(*turns);
        return chat_row(object, parsed ? *parsed : *turns, key, columns, where);
      }
  for (const PairColumns& pair : kPairs)
    if (field(object, pair.question) && field(object, pair.answer))
      return pair_row(object, pair, columns, where);
  if (const json* text = field(object, "text"); text && !instruction && !output) {
    if (columns.pictures && !pictures_beside(object, columns, where).empty())
      throw UserError(
          "{}: \"text\" beside a picture is its caption: --data ImageFolder --data.path FILE reads "
          "such rows; a question and an answer are \"instruction\" and \"output\"",
          where);
    Row row;
    row.kind = RowKind::Text;
    row.output = text_of(*text, "text", where);
    return row;
  }
  throw UserError(
      "{}: no \"{}\"; a row needs \"{}\" and \"{}\" (\"input\" is optional), or \"messages\", "
      "\"question\" and \"answer\", \"prompt\" and \"completion\", or \"text\"; columns found: {}",
      where, output ? columns.instruction : columns.output, columns.instruction, columns.output,
      columns_of(object));
}

std::vector<std::string> row_columns(const Columns& columns) {
  std::vector<std::string> all = {columns.instruction, columns.input, columns.output, "text",
                                  "history",           "tools"};
  const auto add = [&](const auto& keys) {
    all.insert(all.end(), std::begin(keys), std::end(keys));
  };
  for (const PairColumns& pair : kPairs) add(std::array{pair.question, pair.answer});
  add(kInputKeys);
  add(kChatKeys);
  add(kSystemKeys);
  if (columns.pictures) add(picture_columns());
  if (columns.preferences || columns.ratings) add(preference_columns());
  if (columns.margins) all.emplace_back("margin");
  if (columns.ratings) add(rating_columns());
  if (columns.classes) {
    all.emplace_back("label");
    add(text_columns());
  }
  return all;
}

bool is_foreign_column(const std::string& name) {
  return is_preference_column(name) || is_rating_column(name);
}

std::string shortened(std::string text, size_t max_bytes) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  if (text.size() <= max_bytes) return text;
  while (max_bytes > 0 && (static_cast<unsigned char>(text[max_bytes]) & 0xC0) == 0x80) --max_bytes;
  return text.substr(0, max_bytes) + "…";
}

}  // namespace snug::data
