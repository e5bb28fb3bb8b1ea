// SPDX-License-Identifier: Apache-2.0
#include "recipe/apply.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/log.h"
#include "recipe/near_key.h"
#include "recipe/numbers.h"
#include "recipe/options/rows.h"

namespace snug::recipe {
namespace {

std::vector<std::string> keys_of_group(const std::vector<Row>& rows, const std::string& group) {
  std::vector<std::string> keys;
  for (const Row& row : rows)
    if (row.key.starts_with(group + ".")) keys.push_back(row.key);
  return keys;
}

std::string unknown_key(const Setting& setting, const OptionTable& table) {
  if (find_row(table.foreign, setting.key))
    return fmt::format("{}: this key belongs to {}, not to this command", setting.where,
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

// Null or false: what another command would do is not asked for.
bool is_declined(const Value& value) {
  return is_unset(value) || (value.kind == Value::Kind::Text && parse_bool(value.text) == false);
}

// Keys without a row: an empty group says nothing, LitGPT's own keys are read over.
void apply_unknown(const Setting& setting, const OptionTable& table, Outcome& outcome) {
  const bool group = !keys_of_group(table.rows, setting.key).empty();
  if (group && is_unset(setting.value)) return;
  if (find_row(table.foreign, setting.key) && is_declined(setting.value)) return;
  const IgnoredKey* ignored = find_ignored_key(setting.key);
  // Only where its group is known: "log." and "data." mean nothing to `snug convert`.
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
  // An explicit null of an optional is a choice; of anything else it is a return to the default.
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
  std::map<std::string, std::string> seen;  // key -> where
  for (const Setting& setting : settings) {
    const Row* row = find_row(table.rows, setting.key);
    if (!row) {
      apply_unknown(setting, table, outcome);
      continue;
    }
    const auto [first, fresh] = seen.emplace(row->key, setting.where);
    if (is_file && !fresh) {
      outcome.faults.push_back(
          fmt::format("{}: already set at {}; keep one", setting.where, first->second));
      continue;
    }
    apply_known(setting, *row, table, outcome);
  }
}

}  // namespace snug::recipe
