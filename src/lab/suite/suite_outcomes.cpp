// SPDX-License-Identifier: Apache-2.0
#include "lab/suite/suite_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "lab/suite/suite_fields.h"
#include "recipe/numbers.h"

namespace snug::lab {
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
  read_figure(fields, "teraflops_per_second", out.teraflops_per_second);
  read_device_use(fields, out);
  read_figure(fields, "epoch_seconds", out.epoch_seconds);
  read_figure(fields, "last_loss", out.last_loss);
  fields.finish();
  return out;
}

}  // namespace snug::lab
