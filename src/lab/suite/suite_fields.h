// Reading a suite's file: its mappings, its layers of options, and the faults in it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/suite/suite.h"
#include "recipe/yaml.h"

namespace snug::lab {

// The faults of a file, collected with their lines while it is read and thrown together.
class Faults {
 public:
  // `file` is shown before every line number.
  explicit Faults(std::string file) : file_(std::move(file)) {}

  // Duplicates are dropped: one list may be read for many rows.
  void add(int line, std::string text);
  bool empty() const { return faults_.empty(); }
  // Throws one UserError with all faults, by line, if there are any.
  void throw_all() const;

 private:
  std::string file_;
  std::vector<std::pair<int, std::string>> faults_;
};

// One mapping, whose entries are read by name. finish() reports every key that was not asked for,
// with the nearest known name. A value of the wrong kind is a fault and reads as absent.
class Fields {
 public:
  // `what` names the mapping in messages: "row ls01", "scaled".
  Fields(const recipe::YamlNode& node, std::string what, Faults& faults);

  int line() const { return node_.line; }
  const std::string& what() const { return what_; }
  Faults& faults() const { return faults_; }

  // The entry's node; nullptr if there is none. A null is an entry.
  const recipe::YamlNode* take(std::string_view key);
  // The same, but nullptr for a null.
  const recipe::YamlNode* take_said(std::string_view key);

  // Overwrites `out` if there is an entry; null makes it empty.
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

// A scalar's text; other kinds are a fault, with `what` in the message.
std::optional<std::string> text_of(const recipe::YamlNode& node, std::string_view what,
                                   Faults& faults);
std::optional<double> number_of(const recipe::YamlNode& node, std::string_view what,
                                Faults& faults);
// "61.97GiB" in bytes.
std::optional<double> bytes_of(const recipe::YamlNode& node, std::string_view what, Faults& faults);

// Whether the text can name a folder; see kNameRule.
bool is_name(std::string_view text);
constexpr std::string_view kNameRule =
    "give letters, digits, '.', '-' and '_', beginning with a letter or digit, at most 100";

// Layers of options: a suite's for all rows, a row's over those of the row it is based on, those
// for plans only. An option has several names (optim, optimizer, optimizer.class_path), and an
// upper layer replaces a lower one under any of them; choosing a class (optimizer) drops the lower
// layers' arguments of another class, as on the command line.

// The key for the recipe that a row starts from; not an option of recipes, but --config.
constexpr std::string_view kConfig = "config";

struct OptionChange {
  std::string key;                   // as written, dotted
  std::optional<std::string> value;  // empty: null, which removes the option
};
using OptionLayer = std::vector<OptionChange>;

enum class TakingBack { Allowed, Refused };

// Reads a `set` mapping; keys and values are checked against the options of snug finetune. The path
// of `config` is relative to `folder`.
OptionLayer read_options(const recipe::YamlNode& node, const std::filesystem::path& folder,
                         TakingBack taking_back, Faults& faults);

void lay_over(Settings& options, const OptionLayer& layer);
void lay_over(Settings& options, const Settings& layer);

// "optim" -> "optimizer.class_path"; an unknown name is returned with dots and underscores
// normalized.
std::string option_key(std::string_view name);
// The value of an option under any of its names; nullptr if it is not set.
const std::string* find_option(const Settings& options, std::string_view name);

}  // namespace snug::lab
