// Reads a suite's rows: resolves `from`, matrices, sweeps and searches into the rows and groups of
// a Suite, in the order of the file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/suite/suite.h"
#include "lab/suite/suite_fields.h"
#include "recipe/yaml.h"

namespace snug::lab {

class RowReader {
 public:
  // `models`: the suite's, in the order of the file.
  RowReader(Suite& suite, std::vector<std::string> models, Faults& faults)
      : suite_(suite), models_(std::move(models)), faults_(faults) {
    base_.command = "finetune_full";
  }

  // The suite's settings for every row. Call it before the others.
  void read_defaults(Fields& suite) { read_common(suite, base_); }
  void read_rows(const recipe::YamlNode& list);
  void read_matrix(const recipe::YamlNode& node);  // one, or a list of them
  void read_sweeps(const recipe::YamlNode& list);
  void read_searches(const recipe::YamlNode& list);
  // Checks that expectations compare with existing rows. Call it after the others.
  void finish();

  const std::string& device() const { return base_.device; }
  // Whether rows or groups were dropped because of a fault that was reported.
  bool has_refused_any() const { return has_refused_any_; }
  // The row's line in the file.
  int line_of(size_t row) const { return lines_[row]; }
  int line_of_group(size_t group) const { return group_lines_[group]; }

 private:
  struct Axis;
  struct Matrix;
  struct Growth;

  // A copy of the row that `from` names, without its id and outcome; or the suite's defaults.
  Row row_from(Fields& fields, const std::string& own_id = {}) const;
  // The settings that rows, matrices, sweeps and searches have in common.
  void read_common(Fields& fields, Row& row);
  void read_settings(Fields& fields, Row& row);
  void read_scaled(Fields& fields, Row& row);
  void read_remarks(Fields& fields, Row& row);
  void read_machine(Fields& fields, Row& row);
  void set_model(const std::string& model, int line, Row& row);
  void read_row(const recipe::YamlNode& node);
  void read_one_matrix(const recipe::YamlNode& node);
  void read_axes(Fields& fields, Matrix& matrix);
  Row combined(const Matrix& matrix, size_t k);
  Axis read_axis(const std::string& name, const recipe::YamlNode& node);
  void read_sweep(const recipe::YamlNode& node);
  std::vector<std::string> read_values(Fields& fields);
  Growth read_growth(Fields& fields);
  void read_search(const recipe::YamlNode& node);
  void read_bounds(Fields& fields, Group& group);
  // False if the id cannot be a folder's name or is taken.
  bool take_id(const std::string& id, int line);
  void add_row(Row row, int line);
  bool add_group(Group group, int line);
  const Row* find(const std::string& id) const;
  std::filesystem::path folder() const { return suite_.file.parent_path(); }

  Suite& suite_;
  Row base_;
  std::vector<std::string> models_;
  Faults& faults_;
  std::vector<int> lines_, group_lines_;
  std::set<std::string> ids_;  // of rows, sweeps and searches
  bool has_refused_any_ = false;
};

// The expected outcome: "oom", or {outcome: ok, memory: {less_than: ls03, …}, time: {…}}.
void read_expected(const recipe::YamlNode& node, Row& row, Faults& faults);
// Whether `node` is one expectation for all rows, rather than one per row.
bool is_one_expectation(const recipe::YamlNode& node);

Published read_published(const recipe::YamlNode& node, Faults& faults);

// Checks that the program accepts the row's command in every mode. `line` is the row's in the file.
void check_words(const Suite& suite, const Row& row, int line, Faults& faults);

// Rows described together, by a matrix or a sweep: entries for single rows by name, and ids and
// titles made from a pattern.

// {name: entry of that row}; `default` is for all rows that are not named.
class ByName {
 public:
  // `node` may be null.
  ByName(const recipe::YamlNode* node, std::string key, Faults& faults);
  // nullptr if there is no entry for this row.
  const recipe::YamlNode* of(std::string_view name) const;
  // Reports names that no row has.
  void finish(const std::vector<std::string>& names) const;

 private:
  const recipe::YamlNode* node_;
  std::string key_;
  Faults& faults_;
};

// `expect` (one for all rows, or by name), `published`, `notes_of` and `explained_of`.
class OutcomesByName {
 public:
  explicit OutcomesByName(Fields& fields);
  // Sets the outcomes of the row with this name.
  void apply(const std::string& name, Row& row);
  void finish() const;

 private:
  const recipe::YamlNode* expect_all_ = nullptr;
  ByName expect_, published_, notes_, explained_;
  std::vector<std::string> names_;
  Faults& faults_;
};

// "{model}-b{batch}" with each {name} replaced. An unknown name is a fault.
std::string filled(const std::string& pattern,
                   const std::vector<std::pair<std::string, std::string>>& values, int line,
                   Faults& faults);

}  // namespace snug::lab
