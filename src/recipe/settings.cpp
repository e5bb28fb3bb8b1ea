// SPDX-License-Identifier: Apache-2.0
#include "recipe/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "recipe/faults.h"
#include "recipe/numbers.h"
#include "recipe/options/help.h"
#include "recipe/options/rows.h"

namespace snug::recipe {
namespace {

Value value_of_scalar(const YamlNode& node) {
  return {.kind = Value::Kind::Text, .text = node.text, .quoted = node.quoted, .items = {}};
}

Value value_of_list(const YamlNode& node) {
  const bool is_plain = std::ranges::all_of(
      node.items, [](const YamlNode& item) { return item.kind == YamlNode::Kind::Scalar; });
  if (!is_plain) return {.kind = Value::Kind::Text, .text = one_line(node), .is_tree = true};
  Value value{.kind = Value::Kind::List};
  for (const YamlNode& item : node.items) value.items.push_back(item.text);
  return value;
}

void flatten(const YamlNode& node, const std::string& typed, const std::string& name,
             std::vector<Setting>& out) {
  const std::string where = fmt::format("{}:{}: {}", name, node.line, typed);
  const std::string key = canonical_key(typed);
  switch (node.kind) {
    case YamlNode::Kind::Null:
      // An empty init_args says nothing about the class whose arguments it would hold.
      if (!typed.ends_with(".init_args")) out.push_back({key, {}, where});
      break;
    case YamlNode::Kind::Scalar:
      out.push_back({key, value_of_scalar(node), where});
      break;
    case YamlNode::Kind::List:
      out.push_back({key, value_of_list(node), where});
      break;
    case YamlNode::Kind::Map:
      for (const auto& [word, child] : node.entries)
        flatten(child, typed.empty() ? word : fmt::format("{}.{}", typed, word), name, out);
      break;
  }
}

// The value of an option: a list for a pair ("[0.9, 0.95]" or "0.9,0.95") and for a bracketed list
// of words ("[q, v]"), otherwise a text.
Value value_of_word(const std::string& word, const Row* row, const std::string& where) {
  const bool pair = row && std::holds_alternative<PairSlot>(row->slot);
  const bool bracketed = word.starts_with('[') && word.find(']') + 1 == word.size();
  const bool list_of_words = row && row->joins_list && bracketed;  // a regular expression is a word
  if (!pair && !list_of_words) return {.kind = Value::Kind::Text, .text = word, .items = {}};
  if (is_null_word(word) || word == "none") return {};
  const std::string list = word.starts_with('[') ? word : "[" + word + "]";
  const YamlNode tree = read_yaml(list, where);
  if (tree.kind != YamlNode::Kind::List) throw UserError("{}: {} is not a list", where, word);
  return value_of_list(tree);
}

void check_utf8(const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (const size_t at = find_invalid_utf8(word); at != std::string::npos)
      throw UserError("an argument is not valid UTF-8 (byte {} of \"{}…\")", at,
                      word.substr(0, at));
}

bool is_option(const std::string& word) { return word.size() > 2 && word.starts_with("--"); }

// Goes through the words once; each take_* consumes those of one option.
class WordReader {
 public:
  WordReader(const std::vector<std::string>& words, const std::vector<Row>& rows)
      : words_(words), rows_(rows) {}

  Words read() {
    check_utf8(words_);
    while (at_ < words_.size()) {
      const std::string& word = words_[at_++];
      if (word == "--") {
        while (at_ < words_.size()) take_positional(words_[at_++]);
      } else if (word == "-h" || word == "--help") {
        out_.help = true;
        const bool wants_all = at_ < words_.size() && words_[at_] == kAllOptions;
        out_.help_all = wants_all;
        if (wants_all) ++at_;
      } else if (is_option(word)) {
        const size_t begin = at_ - 1;
        take_option(word);
        out_.options.push_back({key_of(word), begin, at_});
      } else if (word == "-o" && find_row(rows_, "out") != nullptr) {
        take_option("--out");
      } else if (word.size() > 1 && word[0] == '-') {
        throw UserError("unknown option {}; options are written --name value, see --help", word);
      } else {
        take_positional(word);
      }
    }
    return std::move(out_);
  }

 private:
  void take_positional(const std::string& word) {
    out_.positionals.push_back({{}, {.kind = Value::Kind::Text, .text = word, .items = {}}, word});
  }

  static std::string key_of(const std::string& word) {
    return canonical_key(std::string_view(word).substr(2, word.find('=') - 2));
  }

  void take_option(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string shown = word.substr(0, equals);
    const std::string key = key_of(word);
    const bool inline_value = equals != std::string::npos;
    if (key == "print_config" && !inline_value) {
      out_.print_config = true;
      return;
    }
    const Row* row = find_row(rows_, key);
    std::string value;
    if (inline_value) {
      value = word.substr(equals + 1);
    } else if (!take_value(row, key, value)) {
      const bool is_known = row != nullptr || key == "config";
      if (!is_known) {
        const std::string near = near_key(key, rows_);
        throw UserError(
            "{}: unknown key; {}", shown,
            near.empty() ? "--help lists all keys" : fmt::format("did you mean --{}?", near));
      }
      throw UserError("{} needs a value: {} {}", shown, shown, row ? value_name(*row) : "VALUE");
    }
    if (key == "config")
      take_config(value);
    else
      take_setting(key, row, value, shown);
  }

  void take_config(const std::string& file) {
    if (!out_.config.empty()) throw UserError("--config is given twice; give one recipe file");
    if (file.empty()) throw UserError("--config needs a value: --config FILE");
    out_.config = file;
  }

  void take_setting(const std::string& key, const Row* row, const std::string& value,
                    const std::string& shown) {
    if (!value.starts_with('{') || (row && row->kind == TextKind::Verbatim)) {
      out_.settings.push_back({key, value_of_word(value, row, shown), shown});
      return;
    }
    for (Setting& setting : settings_of_tree(read_yaml(value, shown), key, shown))
      out_.settings.push_back(std::move(setting));
  }

  static bool is_auto(std::string_view word) {
    return std::ranges::equal(word, std::string_view("auto"),
                              [](unsigned char a, char b) { return std::tolower(a) == b; });
  }

  // Takes the next word if it can be this option's value. A flag takes only true or false (some
  // also auto), so that "model" in «--json model» stays a positional argument.
  bool take_value(const Row* row, const std::string& key, std::string& value) {
    const bool flag = row && is_flag(*row, key);
    const bool alone = flag || (row && row->may_stand_alone);
    const bool next = at_ < words_.size() && words_[at_] != "--" && !is_option(words_[at_]);
    const bool may_be_auto = flag && (row->automatic != nullptr || row->key == "precision");
    const bool may_be_none = flag && is_optional(*row);
    if (next && (!flag || parse_bool(words_[at_]) || (may_be_auto && is_auto(words_[at_])) ||
                 (may_be_none && words_[at_] == "none"))) {
      value = is_auto(words_[at_]) ? "auto" : words_[at_];
      ++at_;
      return true;
    }
    if (alone) value = "true";
    return alone;
  }

  const std::vector<std::string>& words_;
  const std::vector<Row>& rows_;
  size_t at_ = 0;
  Words out_;
};

}  // namespace

std::string canonical_key(std::string_view key) {
  std::string out;
  for (size_t start = 0; start <= key.size();) {
    const size_t dot = std::min(key.find('.', start), key.size());
    const std::string_view word = key.substr(start, dot - start);
    if (word != "init_args" || start == 0) {
      if (start > 0) out += '.';
      out += word;
    }
    start = dot + 1;
  }
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

std::vector<Setting> settings_of_tree(const YamlNode& tree, const std::string& prefix,
                                      const std::string& name) {
  std::vector<Setting> out;
  flatten(tree, prefix, name, out);
  return out;
}

Words read_words(const std::vector<std::string>& words, const std::vector<Row>& rows) {
  return WordReader(words, rows).read();
}

namespace {

std::vector<std::string> keys_of_group(const std::vector<Row>& rows, const std::string& group) {
  std::vector<std::string> keys;
  for (const Row& row : rows)
    if (row.key.starts_with(group + ".")) keys.push_back(row.key);
  return keys;
}

std::string unknown_key(const Setting& setting, const OptionTable& table) {
  if (find_row(table.foreign, setting.key))
    return fmt::format("{}: an option of snug {}, not of this command", setting.where,
                       table.foreign_home);
  const std::vector<std::string> group = keys_of_group(table.rows, setting.key);
  if (!group.empty())
    return fmt::format("{}: this is a group of keys, not a value; its keys are {}", setting.where,
                       fmt::join(group, ", "));
  const std::string near = near_key(setting.key, table.rows);
  return fmt::format(
      "{}: unknown key{}", setting.where,
      near.empty() ? "; --help lists all keys" : fmt::format("; did you mean {}?", near));
}

bool is_unset(const Value& value) {
  return value.kind == Value::Kind::Null ||
         (value.kind == Value::Kind::Text && !value.quoted && is_null_word(value.text));
}

// Null or false declines an option of another command.
bool is_declined(const Value& value) {
  return is_unset(value) || (value.kind == Value::Kind::Text && parse_bool(value.text) == false);
}

// Keys without a row: an empty group is no fault, and LitGPT's own keys are ignored.
void apply_unknown(const Setting& setting, const OptionTable& table, Outcome& outcome) {
  const bool group = !keys_of_group(table.rows, setting.key).empty();
  if (group && is_unset(setting.value)) return;
  if (find_row(table.foreign, setting.key) && is_declined(setting.value)) return;
  const IgnoredKey* ignored = find_ignored_key(setting.key);
  // Only for commands with a recipe.
  const bool known_group = !keys_of_group(table.rows, "train").empty();
  if (!ignored || !known_group) {
    outcome.faults.push_back(unknown_key(setting, table));
  } else if (!is_unset(setting.value)) {
    warn("{}: ignored: {}", setting.where, ignored->why);
  }
}

void apply_known(const Setting& setting, const Row& row, const OptionTable& table,
                 Outcome& outcome) {
  const Row& fallback = *find_row(table.defaults, row.key);
  const Value value = reworded(row, setting.key, setting.value);
  const std::string fault = store(row, value, fallback);
  if (!fault.empty()) {
    outcome.faults.push_back(fmt::format("{}: {}", setting.where, fault));
    return;
  }
  if (row.selected) {
    row.selected();
    const std::string group = row.key.substr(0, row.key.find('.') + 1);
    std::erase_if(outcome.given, [&](const std::string& key) { return key.starts_with(group); });
  }
  // An explicit null sets an optional; any other option returns to its default.
  if (unsets(row, value, fallback) && !is_optional(row) && row.null_means.empty())
    outcome.given.erase(row.key);
  else
    outcome.given.insert(row.key);
}

}  // namespace

void apply_settings(std::vector<Setting> settings, const OptionTable& table, bool is_file,
                    Outcome& outcome) {
  std::stable_partition(settings.begin(), settings.end(), [&](const Setting& setting) {
    const Row* row = find_row(table.rows, setting.key);
    return row && row->selected;
  });
  std::map<std::string, const Setting*> seen;  // by the row's key
  for (const Setting& setting : settings) {
    const Row* row = find_row(table.rows, setting.key);
    if (!row) {
      apply_unknown(setting, table, outcome);
      continue;
    }
    const auto [first, fresh] = seen.emplace(row->key, &setting);
    // --bf16 and --precision are two opinions; the same option again is a correction.
    const bool same_words = setting.key == first->second->key ||
                            !(is_flag(*row, setting.key) || is_flag(*row, first->second->key));
    if (!fresh && (is_file || !same_words)) {
      outcome.faults.push_back(
          fmt::format("{}: already set at {}; keep one", setting.where, first->second->where));
      continue;
    }
    apply_known(setting, *row, table, outcome);
  }
}

}  // namespace snug::recipe
