// Everything that is only a way of writing rows, resolved: `from`, matrix, sweeps and searches turn
// into rows and groups of a Suite, in the order of the file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "lab/suite/suite.h"
#include "lab/suite/suite_fields.h"
#include "recipe/yaml.h"

namespace snug::lab {

class RowReader {
 public:
  // `models` are the suite's in the order of the file.
  RowReader(Suite& suite, std::vector<std::string> models, Faults& faults)
      : suite_(suite), models_(std::move(models)), faults_(faults) {
    base_.command = "finetune_full";
  }

  // What the suite says for every row; before any of them.
  void read_defaults(Fields& suite) { read_common(suite, base_); }
  void read_rows(const recipe::YamlNode& list);
  void read_matrix(const recipe::YamlNode& node);  // one, or a list of them
  void read_sweeps(const recipe::YamlNode& list);
  void read_searches(const recipe::YamlNode& list);
  // What can only be said once all rows are there: with whom expectations compare.
  void finish();

  const std::string& device() const { return base_.device; }
  // Rows or groups were there, and what is wrong with them has been said.
  bool has_refused_any() const { return has_refused_any_; }
  // Where the row stands in the file.
  int line_of(size_t row) const { return lines_[row]; }
  int line_of_group(size_t group) const { return group_lines_[group]; }

 private:
  struct Axis;
  struct Matrix;
  struct Growth;

  // The row that `from` names, without what is its own; or the suite's defaults.
  Row row_from(Fields& fields, const std::string& own_id = {}) const;
  // What rows, matrices, sweeps and searches all may say of the run itself.
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
  // Says no where the id cannot be a folder's name or is taken already.
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

// What a row is expected to do and what was published of it (suite_outcomes.cpp).

// "oom", or {outcome: ok, memory: {less_than: ls03, …}, time: {…}}.
void read_expected(const recipe::YamlNode& node, Row& row, Faults& faults);
// Whether `node` is one expectation, rather than one for each of several rows.
bool is_one_expectation(const recipe::YamlNode& node);

Published read_published(const recipe::YamlNode& node, Faults& faults);

// Whether the words that a suite's row becomes are ones that the program takes: its command, read
// whole, in every mode that it can be used in. `line` is the row's in the file.
void check_words(const Suite& suite, const Row& row, int line, Faults& faults);

}  // namespace snug::lab
