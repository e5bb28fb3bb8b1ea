// SPDX-License-Identifier: Apache-2.0
#include "data/rows/rows.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "data/pictures/picture_text.h"
#include "data/rows/csv.h"
#include "data/rows/hugging_face.h"
#include "data/rows/row_from_json.h"

namespace snug::data {
namespace {

using json = nlohmann::ordered_json;
using Event = json::parse_event_t;

// Watches the parser and takes each row as soon as it is whole. `row_depth` is the number of
// brackets around a row: 0 for a line of JSONL, 1 in an array, 2 in {"data": […]}. A row is an
// object, or an array of turns.
class RowCollector {
 public:
  RowCollector(const Columns& columns, std::string name, std::vector<Row>& rows)
      : columns_(columns), name_(std::move(name)), rows_(rows) {}

  void set_line(size_t line) { line_ = line; }
  bool saw_rows() const { return saw_container_; }
  const std::set<std::string>& top_keys() const { return top_keys_; }

  std::string where() const {
    if (line_ > 0) return fmt::format("{}:{}", name_, line_);
    return fmt::format("{}: row {}", name_, rows_.size() + 1);
  }

  // The parser's callback: false drops the value.
  bool on_event(int depth, Event event, json& value) {
    const bool opens = event == Event::array_start || event == Event::object_start;
    if (opens && depth == 0) open_top(event == Event::array_start);
    if (opens && depth >= kMaxDepth)
      throw UserError("{}: brackets nest deeper than {} levels", where(), kMaxDepth);
    if (event == Event::key) on_key(depth, value);
    if (event == Event::object_start) forget_keys(depth + 1);
    if (!inside_rows_) {
      if (depth == 1 && event == Event::array_start && !saw_container_ && is_rows_key(top_key_))
        open_data();
      return opens || event == Event::key;
    }
    if (row_depth_ == 2 && depth == 1 && event == Event::array_end) inside_rows_ = false;
    if (depth != row_depth_ || event == Event::key) return true;
    if (event == Event::value) refuse_row(value);
    if (event == Event::object_end) rows_.push_back(row_from_json(value, columns_, where()));
    if (event == Event::array_end)
      rows_.push_back(row_from_json({{"messages", std::move(value)}}, columns_, where()));
    return opens;
  }

 private:
  void open_top(bool is_array) {
    saw_container_ = inside_rows_ = is_array || line_ > 0;
    row_depth_ = line_ > 0 ? 0 : is_array ? 1 : 2;
  }

  void open_data() { saw_container_ = inside_rows_ = true; }

  void on_key(int depth, const json& key) {
    const auto& text = key.get_ref<const std::string&>();
    if (inside_rows_ && !keys_[static_cast<size_t>(depth)].insert(text).second)
      throw UserError("{}: the key \"{}\" is given twice", where(), shortened(text, 60));
    if (inside_rows_ || depth != 1) return;
    top_key_ = text;
    if (!top_keys_.insert(text).second && is_rows_key(text))
      throw UserError("{}: the key \"{}\" is given twice", name_, text);
  }

  static bool is_rows_key(std::string_view key) { return key == "data" || key == "train"; }

  void forget_keys(int depth) {
    const auto own = static_cast<size_t>(depth);
    if (keys_.size() <= own) keys_.resize(own + 1);
    keys_[own].clear();
  }

  [[noreturn]] void refuse_row(const json& value) const {
    throw UserError(
        "{}: a row must be an object {{…}}, or an array of the turns of a chat, but this is {}",
        where(), value.type_name());
  }

  const Columns& columns_;
  std::string name_;
  std::vector<Row>& rows_;
  size_t line_ = 0;
  int row_depth_ = 0;
  bool inside_rows_ = false, saw_container_ = false;
  std::string top_key_;
  std::set<std::string> top_keys_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open, by their depth
};

// The library's sentence without its own prefix and place, short and on one line.
std::string reason_of(const json::exception& error) {
  std::string text = error.what();
  if (const size_t at = text.find("] "); at != std::string::npos) text.erase(0, at + 2);
  if (const size_t at = text.find(": ");
      text.starts_with("parse error at") && at != std::string::npos)
    text.erase(0, at + 2);
  return shortened(std::move(text), 200);
}

// What Python writes for numbers that JSON does not have.
std::string_view python_hint(std::string_view text, size_t last_read) {
  const std::string_view here =
      text.substr(std::min(last_read > 0 ? last_read - 1 : 0, text.size()));
  return here.starts_with("NaN") || here.starts_with("Infinity")
             ? "; NaN and Infinity are no JSON: write null"
             : "";
}

size_t line_of(std::string_view text, size_t offset) {
  return 1 + static_cast<size_t>(
                 std::count(text.begin(), text.begin() + std::min(offset, text.size()), '\n'));
}

void parse(std::string_view text, RowCollector& collector) {
  // The parser builds what the callback keeps, and the callback keeps single rows only.
  const json rest = json::parse(text.begin(), text.end(), [&](int depth, Event event, json& value) {
    return collector.on_event(depth, event, value);
  });
  (void)rest;
}

// An array of rows, or an object whose "data" is one. Only one row at a time is held as a JSON
// tree.
std::vector<Row> rows_from_json(std::string_view text, const Columns& columns,
                                const std::string& name) {
  std::vector<Row> rows;
  RowCollector collector(columns, name, rows);
  try {
    parse(text, collector);
  } catch (const json::parse_error& error) {
    throw UserError("{}:{}: not valid JSON: {}{}{}", name, line_of(text, error.byte),
                    reason_of(error), python_hint(text, error.byte),
                    error.byte < text.size() && !collector.saw_rows()
                        ? "; if every line holds one object, name the file .jsonl"
                        : "");
  } catch (const json::exception& error) {
    throw UserError("{}: {}", collector.where(), reason_of(error));
  }
  if (!collector.saw_rows())
    throw UserError(
        "{}: must be an array of rows, or an object with such an array as \"data\" or \"train\"; "
        "found {}",
        name,
        collector.top_keys().empty()
            ? "none"
            : fmt::format(
                  "an object with the keys {}",
                  shortened(fmt::format("{}", fmt::join(collector.top_keys(), ", ")), 400)));
  return rows;
}

// One row per line; blank lines are skipped.
std::vector<Row> rows_from_jsonl(std::string_view text, const Columns& columns,
                                 const std::string& name) {
  std::vector<Row> rows;
  RowCollector collector(columns, name, rows);
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    collector.set_line(number);
    const size_t before = rows.size();
    try {
      parse(line, collector);
    } catch (const json::parse_error& error) {
      throw UserError("{}:{}: not valid JSON: {}{}", name, number, reason_of(error),
                      python_hint(line, error.byte));
    } catch (const json::exception& error) {
      throw UserError("{}:{}: not valid JSON: {}", name, number, reason_of(error));
    }
    if (rows.size() == before)
      throw UserError("{}:{}: a row must be an object {{…}} on one line", name, number);
  }
  return rows;
}

std::string_view without_byte_order_mark(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  return text;
}

void check_utf8(std::string_view text, const std::string& name) {
  const size_t bad = find_invalid_utf8(text);
  if (bad == std::string_view::npos) return;
  throw UserError("{}:{}: byte {} (0x{:02x}) is not valid UTF-8; convert the file to UTF-8", name,
                  1 + std::count(text.begin(), text.begin() + bad, '\n'), bad,
                  static_cast<unsigned char>(text[bad]));
}

void check_text(std::string_view text, const std::string& name) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    throw UserError("{} is empty; it must hold at least one row", name);
  check_utf8(text, name);
}

bool is_compressed(const std::filesystem::path& path) {
  return path.extension() == ".gz" || path.extension() == ".zst";
}

// Numbers of JSON have no bounds, those of its parser have: whole ones beyond them are read as
// text, for a template to write as they stand. Nothing where there is none.
std::optional<std::string> with_long_numbers_as_text(std::string_view text) {
  constexpr size_t kFewestDigits = 19;
  std::string copy;
  size_t copied = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\' ? 1 : 0;
      continue;
    }
    if (text[i] != '-' && (text[i] < '0' || text[i] > '9')) continue;
    const size_t begin = i,
                 end = std::min(text.find_first_not_of("0123456789", i + 1), text.size());
    const bool is_whole =
        end == text.size() || std::string_view(".eE").find(text[end]) == text.npos;
    i = std::min(is_whole ? end : text.find_first_not_of("0123456789.eE+-", end), text.size()) - 1;
    if (!is_whole || end - begin < kFewestDigits) continue;
    int64_t low = 0;
    uint64_t high = 0;
    const std::string_view number = text.substr(begin, end - begin);
    const bool fits =
        std::from_chars(number.data(), number.data() + number.size(), low).ec == std::errc() ||
        std::from_chars(number.data(), number.data() + number.size(), high).ec == std::errc();
    if (fits) continue;
    copy.append(text.substr(copied, begin - copied)).append("\"").append(number).append("\"");
    copied = end;
  }
  if (copied == 0) return std::nullopt;
  return copy.append(text.substr(copied));
}

// Some name JSON Lines .json: an object on the first line, and behind it another.
bool is_json_lines(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  const size_t end = text.find('\n');
  if (!text.starts_with('{') || end == std::string_view::npos) return false;
  const size_t next = text.find_first_not_of(kBlank, end);
  return next != std::string_view::npos && text[next] == '{' && json::accept(text.substr(0, end));
}

std::vector<Row> rows_from_text(std::string_view whole, const std::string& ending,
                                const Columns& columns, const std::string& name) {
  check_text(without_byte_order_mark(whole), name);
  const std::string_view text = without_byte_order_mark(whole);
  if (ending == ".csv") return rows_from_csv(text, separator_of(text), columns, name);
  if (ending == ".tsv") return rows_from_csv(text, '\t', columns, name);
  const std::optional<std::string> changed = with_long_numbers_as_text(text);
  const std::string_view read = changed ? std::string_view(*changed) : text;
  return ending == ".json" && !is_json_lines(read) ? rows_from_json(read, columns, name)
                                                   : rows_from_jsonl(read, columns, name);
}

std::vector<Row> read_text_rows(const std::filesystem::path& path, const Columns& columns) {
  if (is_compressed(path))
    return rows_from_text(read_compressed(path), ending_of(path), columns, path.string());
  const MappedFile file(path);
  return rows_from_text({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()},
                        ending_of(path), columns, path.string());
}

}  // namespace

std::string ending_of(const std::filesystem::path& path) {
  return (is_compressed(path) ? path.stem() : path).extension().string();
}

std::string read_text(const std::filesystem::path& path) {
  const std::string whole = is_compressed(path)
                                ? read_compressed(path)
                                : read_file(path, std::numeric_limits<size_t>::max());
  const std::string_view text = without_byte_order_mark(whole);
  check_utf8(text, path.string());
  return std::string(text);
}

std::vector<Row> read_rows(const std::filesystem::path& path, const Columns& columns) {
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored))
    throw UserError("{} is a folder; name a .json, .jsonl, .csv, .tsv or .parquet file in it",
                    path.string());
  const std::string ending = ending_of(path);
  std::vector<Row> rows;
  if (ending == ".json" || ending == ".jsonl" || ending == ".csv" || ending == ".tsv")
    rows = read_text_rows(path, columns);
  else if (ending == ".parquet" && !is_compressed(path))
    rows = read_parquet_rows(path, columns);
  else
    throw UserError(
        "{}: the name must end in .json, .jsonl, .csv or .tsv, all of them also with .gz or .zst "
        "behind it, or in .parquet{}",
        path.string(),
        ending == ".txt" ? "; --data TextFiles --data.path FILE reads a plain text" : "");
  if (rows.empty()) throw UserError("{} holds no rows; at least one is needed", path.string());
  for (Row& row : rows)
    for (std::string& picture : row.pictures) picture = (path.parent_path() / picture).string();
  return rows;
}

std::vector<Row> split_conversations(const std::vector<Row>& rows) {
  std::vector<Row> pairs;
  for (const Row& row : rows) {
    if (row.messages.empty()) pairs.push_back(row);
    if (row.needs_template)
      throw UserError(
          "row {}: its answers call tools, which questions by themselves cannot; set "
          "data.include_multiturn_conversations to false",
          row.number);
    const Message* question = nullptr;
    auto picture = row.pictures.begin();
    std::vector<std::string> pictures;  // of the question
    for (const Message& turn : row.messages) {
      const int64_t shown = row.pictures.empty() ? 0 : count_marks(turn.content);
      if (turn.role == "user") pictures.assign(picture, picture + shown);
      picture += shown;
      if (turn.role == "assistant" && !turn.in_prompt && question)
        pairs.push_back({.instruction = question->content,
                         .input = "",
                         .output = turn.content,
                         .messages = {},
                         .pictures = pictures,
                         .number = row.number});
      question = turn.role == "user" ? &turn : nullptr;
    }
  }
  return pairs;
}

std::vector<Row> split_turns(const std::vector<Row>& rows) {
  const auto is_learnt = [](const Message& turn) {
    return turn.role == "assistant" && turn.learnt && !turn.in_prompt;
  };
  std::vector<Row> all;
  for (const Row& row : rows) {
    if (std::ranges::none_of(row.messages, is_learnt)) {
      all.push_back(row);
      continue;
    }
    for (size_t i = 0; i < row.messages.size(); ++i) {
      if (!is_learnt(row.messages[i])) continue;
      Row own = row;
      own.messages.resize(i + 1);
      int64_t shown = 0;
      for (Message& turn : own.messages) {
        turn.in_prompt = true;
        shown += row.pictures.empty() ? 0 : count_marks(turn.content);
      }
      own.messages.back().in_prompt = false;
      own.pictures.resize(static_cast<size_t>(shown));
      all.push_back(std::move(own));
    }
  }
  return all;
}

std::vector<Row> unpaired(std::vector<Row> rows) {
  std::vector<Row> rejected;
  for (Row& row : rows) {
    for (Row& other : row.others) {
      other.desirable = false;
      other.number = row.number;
      rejected.push_back(std::move(other));
    }
    row.others.clear();
  }
  rows.insert(rows.end(), std::make_move_iterator(rejected.begin()),
              std::make_move_iterator(rejected.end()));
  return rows;
}

}  // namespace snug::data
