// A suite's file as it is read: its mappings, and what it says wrong.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "recipe/yaml.h"

namespace snug::lab {

// All that a file says wrong, collected with lines while it is read, thrown once.
class Faults {
 public:
  // `file` stands in front of every line's number.
  explicit Faults(std::string file) : file_(std::move(file)) {}

  // The same words about the same line are kept once: one list may be read for many rows.
  void add(int line, std::string text);
  bool empty() const { return faults_.empty(); }
  // Throws one UserError with all of them by line; nothing happens when there is none.
  void throw_all() const;

 private:
  std::string file_;
  std::vector<std::pair<int, std::string>> faults_;
};

// One mapping, its entries taken by name. What is asked for is what the mapping may hold: finish()
// reports every other key, with the nearest of those names. A value of the wrong kind is a fault
// and reads as absent.
class Fields {
 public:
  // `what` names the mapping in messages: "row ls01", "scaled".
  Fields(const recipe::YamlNode& node, std::string what, Faults& faults);

  int line() const { return node_.line; }
  const std::string& what() const { return what_; }
  Faults& faults() const { return faults_; }

  // The entry's node; nullptr where there is none. A null is an entry.
  const recipe::YamlNode* take(std::string_view key);
  // The same, where it says something.
  const recipe::YamlNode* take_said(std::string_view key);

  // Overwrites `out` where the entry is there; null makes it empty.
  void read(std::string_view key, std::string& out);
  void read(std::string_view key, std::optional<double>& out);
  void read_size(std::string_view key, std::string& out);               // "900MiB"; checked
  void read_seconds(std::string_view key, double& out);                 // not negative
  void read_list(std::string_view key, std::vector<std::string>& out);  // one text or a list
  void add(std::string_view key, const std::string& text);  // a fault at the entry's line

  void finish();

 private:
  const recipe::YamlNode& node_;
  std::string what_;
  Faults& faults_;
  std::vector<std::string> asked_;
};

// A scalar's text; other kinds are a fault about `what`.
std::optional<std::string> text_of(const recipe::YamlNode& node, std::string_view what,
                                   Faults& faults);
std::optional<double> number_of(const recipe::YamlNode& node, std::string_view what,
                                Faults& faults);
// "61.97GiB" in bytes.
std::optional<double> bytes_of(const recipe::YamlNode& node, std::string_view what, Faults& faults);

// Whether a folder can have this name: letters, digits, ".", "-", "_", the first one none of the
// last three, at most a hundred.
bool is_name(std::string_view text);
constexpr std::string_view kNameRule =
    "give letters, digits, '.', '-' and '_', beginning with a letter or digit, at most 100";

}  // namespace snug::lab
