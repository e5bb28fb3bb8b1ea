// SPDX-License-Identifier: Apache-2.0
#include "lab/suite/suite_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "lab/suite/suite_fields.h"
#include "recipe/gpus.h"
#include "recipe/numbers.h"

namespace snug::lab {
namespace {

using recipe::YamlNode;

// More rows than anybody would read are a mistake, such as an axis too many.
constexpr size_t kMostRows = 2000;

std::string one_of(const std::string& text, const std::vector<std::string>& names) {
  if (std::find(names.begin(), names.end(), text) != names.end()) return {};
  const std::string near = nearest_name(text, names);
  return fmt::format("\"{}\" is not one of {}{}", text, fmt::join(names, ", "),
                     near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

void read_choice(Fields& fields, std::string_view key, const std::vector<std::string>& choices,
                 std::string& out) {
  std::string text = out;
  fields.read(key, text);
  const std::string fault = text == out ? "" : one_of(text, choices);
  if (fault.empty())
    out = text;
  else
    fields.add(key, fmt::format("{}: {}", key, fault));
}

void read_set(Fields& fields, const std::filesystem::path& folder, TakingBack taking_back,
              Settings& out) {
  if (const YamlNode* set = fields.take("set"))
    lay_over(out, read_options(*set, folder, taking_back, fields.faults()));
}

}  // namespace

Row RowReader::row_from(Fields& fields, const std::string& own_id) const {
  std::string from;
  fields.read("from", from);
  if (from.empty()) return base_;
  const Row* found = find(from);
  if (found == nullptr && from == own_id) {
    fields.add("from", fmt::format("from: {} is this row itself; give a row above it", from));
    return base_;
  }
  if (found == nullptr) {
    std::vector<std::string> ids;
    for (const Row& row : suite_.rows) ids.push_back(row.id);
    const std::string near = nearest_name(from, ids);
    fields.add("from", fmt::format("from: {} is not an earlier row{}", from,
                                   near.empty() ? "" : fmt::format("; did you mean {}?", near)));
    return base_;
  }
  Row row = *found;
  row.from = row.id;
  row.id = row.title = row.change = row.not_run = row.group = "";
  row.value.reset();
  row.notes.clear();
  row.explained.clear();
  row.expected = Expected::Unknown;
  row.comparisons.clear();
  row.published = {};
  return row;
}

void RowReader::set_model(const std::string& model, int line, Row& row) {
  row.model = model;
  if (model.empty() || suite_.models.contains(model)) return;
  const std::string fault = models_.empty() ? "the suite has no models" : one_of(model, models_);
  faults_.add(line, fmt::format("model {}: {}", model, fault));
  row.model.clear();
}

namespace {

void read_price(Fields& fields, std::string& price) {
  fields.read("price_per_hour", price);
  if (price.empty() || recipe::parse_price(price)) return;
  fields.add("price_per_hour",
             fmt::format("price_per_hour: \"{}\" is no price; give a number above 0, with or "
                         "without a currency: 2.49 USD",
                         price));
  price.clear();
}

}  // namespace

void RowReader::read_machine(Fields& fields, Row& row) {
  const std::string before = row.device;
  std::string device = row.device;
  fields.read("device", device);
  if (device.ends_with(".yaml") && device != row.device) {
    row.device = (folder() / device).lexically_normal().string();
  } else if (device != row.device) {
    std::vector<std::string> names = recipe::gpu_profile_names();
    names.insert(names.begin(), {"cpu", ""});
    const std::string fault = one_of(device, names);
    if (!fault.empty()) fields.add("device", fmt::format("device: {}", fault));
    row.device = device;
  }
  if (row.device != before) row.price_per_hour.clear();  // that was another device's
  read_price(fields, row.price_per_hour);
  fields.read_size("memory_budget", row.memory_budget);
}

void RowReader::read_settings(Fields& fields, Row& row) {
  read_set(fields, folder(), TakingBack::Allowed, row.options);
  if (const YamlNode* node = fields.take_said("as_published"))
    lay_over(row.original_options, read_options(*node, folder(), TakingBack::Refused, faults_));
  if (const YamlNode* node = fields.take_said("plan")) {
    Fields plan(*node, "plan", faults_);
    read_set(plan, folder(), TakingBack::Refused, row.plan_options);
    read_machine(plan, row);
    plan.finish();
  }
  if (const YamlNode* node = fields.take_said("run")) {
    Fields run(*node, "run", faults_);
    read_set(run, folder(), TakingBack::Refused, row.run_options);
    run.finish();
  }
  read_scaled(fields, row);
}

void RowReader::read_scaled(Fields& fields, Row& row) {
  const YamlNode* node = fields.take_said("scaled");
  if (node == nullptr) return;
  Fields scaled(*node, "scaled", faults_);
  read_set(scaled, folder(), TakingBack::Refused, row.scaled_options);
  scaled.read_size("memory_budget", row.scaled_memory_budget);
  if (&row == &base_) {
    scaled.read("about", suite_.scaled_about);
    scaled.read_seconds("row_timeout", suite_.scaled_row_timeout_seconds);
  }
  scaled.finish();
}

void RowReader::read_common(Fields& fields, Row& row) {
  if (const YamlNode* node = fields.take("model"))
    if (const auto model = text_of(*node, "model", faults_)) set_model(*model, node->line, row);
  read_choice(fields, "command", {"finetune_full", "finetune", "finetune_lora"}, row.command);
  read_choice(fields, "like", {"litgpt", "lightning", "none"}, row.like);
  if (row.like == "none") row.like.clear();
  read_machine(fields, row);
  read_settings(fields, row);
  fields.read("hardware", row.hardware);
  std::string fitted = row.time_is_fitted ? "true" : "false";
  read_choice(fields, "time_is_fitted", {"true", "false"}, fitted);
  row.time_is_fitted = fitted == "true";
}

void RowReader::read_remarks(Fields& fields, Row& row) {
  fields.read_list("notes", row.notes);
  fields.read_list("explained", row.explained);
  fields.read("not_run", row.not_run);
}

bool RowReader::take_id(const std::string& id, int line) {
  if (!is_name(id)) {
    has_refused_any_ = true;
    faults_.add(line, fmt::format("id \"{}\": {}", id.substr(0, 120), kNameRule));
    return false;
  }
  if (ids_.insert(id).second) return true;
  faults_.add(line,
              fmt::format("id {}: is given twice; each row, sweep and search needs its own", id));
  return false;
}

void RowReader::add_row(Row row, int line) {
  if (suite_.rows.size() == kMostRows) {
    faults_.add(line,
                fmt::format("more than {} rows; remove values from an axis or a sweep", kMostRows));
    return;
  }
  if (suite_.rows.size() > kMostRows || !take_id(row.id, line)) return;
  if (row.title.empty()) row.title = row.id;
  lines_.push_back(line);
  suite_.rows.push_back(std::move(row));
}

bool RowReader::add_group(Group group, int line) {
  if (!take_id(group.id, line)) return false;
  group_lines_.push_back(line);
  suite_.groups.push_back(std::move(group));
  return true;
}

const Row* RowReader::find(const std::string& id) const {
  for (const Row& row : suite_.rows)
    if (row.id == id) return &row;
  return nullptr;
}

void RowReader::read_rows(const YamlNode& list) {
  if (list.kind != YamlNode::Kind::List)
    return faults_.add(list.line, "rows: must be a list of rows, each with an id");
  for (const YamlNode& node : list.items) read_row(node);
}

void RowReader::read_row(const YamlNode& node) {
  Fields fields(node, "a row", faults_);
  std::string id;
  fields.read("id", id);
  Row row = row_from(fields, id);
  row.id = id;
  fields.read("title", row.title);
  fields.read("change", row.change);
  read_common(fields, row);
  read_remarks(fields, row);
  if (const YamlNode* expect = fields.take("expect")) read_expected(*expect, row, faults_);
  if (const YamlNode* published = fields.take("published"))
    row.published = read_published(*published, faults_);
  fields.finish();
  add_row(std::move(row), node.line);
}

void RowReader::finish() {
  std::vector<std::string> ids;
  for (const Row& row : suite_.rows) ids.push_back(row.id);
  for (size_t i = 0; i < suite_.rows.size(); ++i)
    for (const Comparison& comparison : suite_.rows[i].comparisons)
      if (const std::string fault = one_of(comparison.than, ids); !fault.empty()) {
        const std::string near = nearest_name(comparison.than, ids);
        faults_.add(lines_[i],
                    fmt::format("row {}: expect: {} is not a row of the suite{}", suite_.rows[i].id,
                                comparison.than,
                                near.empty() ? "" : fmt::format("; did you mean {}?", near)));
      }
}

namespace {

using recipe::YamlNode;

void read_outcome(const YamlNode& node, Row& row, Faults& faults) {
  const auto text = text_of(node, "expect", faults);
  if (!text) return;
  for (const Expected expected : {Expected::Ok, Expected::OutOfMemory, Expected::Unknown})
    if (*text == name(expected)) {
      row.expected = expected;
      return;
    }
  faults.add(node.line, fmt::format("expect: \"{}\" is not one of ok, oom, unknown", *text));
}

void read_comparisons(Fields& expect, std::string_view key, Comparison::Quantity quantity,
                      Row& row) {
  const YamlNode* node = expect.take_said(key);
  if (node == nullptr) return;
  Fields fields(*node, fmt::format("expect.{}", key), expect.faults());
  const std::pair<std::string_view, Comparison::Relation> relations[] = {
      {"less_than", Comparison::Relation::Less},
      {"more_than", Comparison::Relation::More},
      {"same_as", Comparison::Relation::Same}};
  for (const auto& [word, relation] : relations) {
    std::vector<std::string> rows;
    fields.read_list(word, rows);
    for (std::string& than : rows) row.comparisons.push_back({quantity, relation, std::move(than)});
  }
  fields.finish();
}

// One value or a list of them, one a rank.
template <class Read>
void read_ranks(Fields& fields, std::string_view key, std::vector<double>& out, Read read) {
  const YamlNode* node = fields.take_said(key);
  if (node == nullptr) return;
  const bool is_list = node->kind == YamlNode::Kind::List;
  for (const YamlNode& item : is_list ? node->items : std::vector<YamlNode>{*node})
    if (const auto value = read(item)) out.push_back(*value);
}

// "71.9%" and 0.719 are the same share.
std::optional<double> share_of(const YamlNode& node, std::string_view what, Faults& faults) {
  auto text = text_of(node, what, faults);
  if (!text) return std::nullopt;
  const bool percent = text->ends_with('%');
  if (percent) text->pop_back();
  const auto number = recipe::parse_float(*text);
  const double share = number.value_or(-1) / (percent ? 100 : 1);
  if (share >= 0 && share <= 1) return share;
  faults.add(node.line,
             fmt::format("{}: \"{}\" is not a share; write 71.9% or 0.719", what, node.text));
  return std::nullopt;
}

void read_device_use(Fields& fields, Published& out) {
  const YamlNode* node = fields.take_said("device_use");
  if (node == nullptr) return;
  if (node->kind != YamlNode::Kind::List) {
    out.device_use = share_of(*node, "device_use", fields.faults());
  } else if (node->items.size() == 2) {
    out.device_use = share_of(node->items[0], "device_use", fields.faults());
    out.device_use_spread = share_of(node->items[1], "device_use", fields.faults());
  } else {
    fields.add("device_use",
               "device_use: must be one share, or a list of a mean and its plus-minus");
  }
}

void read_figure(Fields& fields, std::string_view key, std::optional<double>& out) {
  fields.read(key, out);
  if (!out || *out > 0) return;
  fields.add(key, fmt::format("{}: {} is not a valid figure; give one above 0", key, *out));
  out.reset();
}

}  // namespace

bool is_one_expectation(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::Map) return true;
  static constexpr std::string_view kKeys[] = {"outcome", "memory", "time"};
  return std::any_of(node.entries.begin(), node.entries.end(), [](const auto& entry) {
    return std::find(std::begin(kKeys), std::end(kKeys), entry.first) != std::end(kKeys);
  });
}

void read_expected(const YamlNode& node, Row& row, Faults& faults) {
  if (node.kind == YamlNode::Kind::Null) return;
  if (node.kind != YamlNode::Kind::Map) return read_outcome(node, row, faults);
  Fields fields(node, "expect", faults);
  if (const YamlNode* outcome = fields.take_said("outcome")) read_outcome(*outcome, row, faults);
  read_comparisons(fields, "memory", Comparison::Quantity::Memory, row);
  read_comparisons(fields, "time", Comparison::Quantity::Time, row);
  fields.finish();
}

Published read_published(const YamlNode& node, Faults& faults) {
  Published out;
  Fields fields(node, "published", faults);
  const auto bytes = [&faults](std::string_view key) {
    return [key, &faults](const YamlNode& item) { return bytes_of(item, key, faults); };
  };
  read_ranks(fields, "allocated_after_forward", out.allocated_after_forward,
             bytes("allocated_after_forward"));
  read_ranks(fields, "peak_allocated", out.peak_allocated, bytes("peak_allocated"));
  read_ranks(fields, "reserved", out.reserved, bytes("reserved"));
  if (const YamlNode* weights = fields.take_said("parameter_bytes"))
    out.parameter_bytes = bytes_of(*weights, "parameter_bytes", faults);
  read_figure(fields, "iteration_seconds", out.iteration_seconds);
  read_figure(fields, "tokens_per_second", out.tokens_per_second);
  read_figure(fields, "teraflops_per_second", out.teraflops_per_second);
  read_device_use(fields, out);
  read_figure(fields, "epoch_seconds", out.epoch_seconds);
  read_figure(fields, "last_loss", out.last_loss);
  fields.finish();
  return out;
}

}  // namespace snug::lab
