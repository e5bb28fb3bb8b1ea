// SPDX-License-Identifier: Apache-2.0
#include "lab/suite/suite.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "lab/suite/suite_fields.h"
#include "lab/suite/suite_rows.h"

namespace snug::lab {
namespace {

using recipe::YamlNode;

constexpr size_t kMaxSuiteBytes = size_t{1} << 20;

// A path of the file's is relative to the file.
void read_path(Fields& fields, std::string_view key, const std::filesystem::path& folder,
               std::string& out) {
  fields.read(key, out);
  if (out.empty()) return;
  out = (folder / out).lexically_normal().string();
  std::error_code error;
  if (!std::filesystem::is_regular_file(out, error))
    fields.add(key, fmt::format("{}: no such file: {}", key, out));
}

// Names in the order of the file.
std::vector<std::string> read_models(const YamlNode& node, Suite& suite, Faults& faults) {
  std::vector<std::string> order;
  if (node.kind != YamlNode::Kind::Map) {
    faults.add(node.line, "models: must be a mapping of names to {checkpoint: …, config: …}");
    return order;
  }
  const std::filesystem::path folder = suite.file.parent_path();
  for (const auto& [name, entry] : node.entries) {
    if (!is_name(name)) faults.add(entry.line, fmt::format("model \"{}\": {}", name, kNameRule));
    Fields fields(entry, fmt::format("model {}", name), faults);
    ModelChoice model;
    fields.read("checkpoint", model.checkpoint);
    read_path(fields, "config", folder, model.config);
    read_path(fields, "scaled", folder, model.scaled_config);
    fields.finish();
    if (model.config.empty())
      faults.add(entry.line,
                 fmt::format("model {}: needs config, the config.json to plan with", name));
    suite.models.emplace(name, std::move(model));
    order.push_back(name);
  }
  return order;
}

void read_name(Fields& fields, Suite& suite) {
  fields.read("suite", suite.name);
  const std::string stem = suite.file.stem().string();
  if (!is_name(suite.name))
    fields.add("suite", fmt::format("suite \"{}\": {}", suite.name, kNameRule));
  else if (suite.name != stem)
    fields.add("suite", fmt::format("suite {}: the file is named {}; give both the same name",
                                    suite.name, suite.file.filename().string()));
}

void check_all_words(const Suite& suite, const RowReader& rows, Faults& faults) {
  for (size_t i = 0; i < suite.rows.size(); ++i)
    check_words(suite, suite.rows[i], rows.line_of(i), faults);
  for (size_t i = 0; i < suite.groups.size(); ++i) {
    const Group& group = suite.groups[i];
    if (group.kind != Group::Kind::Search) continue;
    for (const int64_t value : {group.smallest, group.largest})
      check_words(suite, search_row(group, value), rows.line_of_group(i), faults);
  }
}

Suite read_tree(const YamlNode& tree, const std::filesystem::path& file, Faults& faults) {
  Suite suite;
  suite.file = file;
  Fields fields(tree, "a suite", faults);
  read_name(fields, suite);
  fields.read("title", suite.title);
  fields.read("about", suite.about);
  fields.read("source", suite.source);
  fields.read_seconds("row_timeout", suite.row_timeout_seconds);
  std::vector<std::string> models;
  if (const YamlNode* node = fields.take_said("models")) models = read_models(*node, suite, faults);
  RowReader rows(suite, std::move(models), faults);
  rows.read_defaults(fields);
  suite.device = rows.device();
  // In the order of the file, so that `from` may name what stands above it.
  for (const char* const section : {"rows", "matrix", "sweeps", "searches"}) fields.take(section);
  for (const auto& [key, node] : tree.entries) {
    if (key == "rows") rows.read_rows(node);
    if (key == "matrix") rows.read_matrix(node);
    if (key == "sweeps") rows.read_sweeps(node);
    if (key == "searches") rows.read_searches(node);
  }
  rows.finish();
  fields.finish();
  if (suite.rows.empty() && suite.groups.empty() && !rows.has_refused_any())
    faults.add(tree.line, "the suite has no rows; give rows, a matrix or sweeps");
  // Words are read once the options are right: a wrong one would be told again for every row.
  if (faults.empty()) check_all_words(suite, rows, faults);
  return suite;
}

}  // namespace

Suite read_suite(const std::filesystem::path& file) {
  const std::string text = read_file(file, kMaxSuiteBytes);
  const YamlNode tree = recipe::read_yaml(text, file.string());
  if (tree.kind != YamlNode::Kind::Map)
    throw UserError("{}: there are no keys; a suite is a mapping that begins with suite: NAME",
                    file.string());
  Faults faults(file.string());
  Suite suite = read_tree(tree, file, faults);
  faults.throw_all();
  return suite;
}

const char* name(Mode mode) {
  switch (mode) {
    case Mode::Plan:
      return "plan";
    case Mode::Run:
      return "run";
    case Mode::Scaled:
      return "scaled";
  }
  return "";
}

const char* name(Expected expected) {
  switch (expected) {
    case Expected::Ok:
      return "ok";
    case Expected::OutOfMemory:
      return "oom";
    case Expected::Unknown:
      return "unknown";
  }
  return "";
}

bool Published::empty() const {
  return allocated_after_forward.empty() && peak_allocated.empty() && reserved.empty() &&
         !parameter_bytes && !iteration_seconds && !teraflops_per_second && !device_use &&
         !device_use_spread && !epoch_seconds && !last_loss;
}

}  // namespace snug::lab
