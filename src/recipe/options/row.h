// One option, declared once. A row binds a member of an option struct to its key, its range or
// choices and its help. Reading YAML and options, printing the resolved recipe, --help, the
// reference page, shell completion and "did you mean" all use these rows, so that none of them can
// know an option that the others do not. The default is the value in a default-constructed struct.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace snug::recipe {

// Two numbers written as a list: betas [0.9, 0.95].
struct PairSlot {
  double* first = nullptr;
  double* second = nullptr;
};

// Texts; each setting of the key adds one.
using ListSlot = std::vector<std::string>*;

using Slot = std::variant<bool*, int64_t*, uint64_t*, double*, std::string*, std::optional<bool>*,
                          std::optional<int64_t>*, std::optional<double>*,
                          std::optional<std::string>*, PairSlot, ListSlot>;

// A value of one of a row's aliases and the value of the row that it stands for: Lightning's
// act_ckpt: true is activation_checkpointing: all. An empty `value` is null.
struct Rewording {
  std::string_view key, word, value;
};

// The kind of a text: decides what completion offers and how a value is checked. A Tree is YAML in
// one line.
enum class TextKind { Word, File, Directory, Bytes, Verbatim, Tree };

struct Row {
  std::string_view theme = {};
  std::string key = {};
  Slot slot = {};
  std::string_view help = {};
  double min = -1e300, max = 1e300;             // numbers, both ends included
  std::vector<std::string> choices = {};        // texts; empty = any
  bool open = false;                            // choices are examples: other texts are accepted
  std::string_view for_a_path = {};             // what to give instead of a choice that is a path
  std::vector<std::string> quiet_choices = {};  // accepted, but not offered
  TextKind kind = TextKind::Word;
  // For a positional after the first: what completion offers; empty: files.
  std::vector<std::string> (*offered_after)(std::string_view first) = nullptr;
  std::string shown = {};                  // the option in help, if shorter than the key
  std::vector<std::string> aliases = {};   // other keys for the same member
  std::vector<Rewording> rewordings = {};  // of their values
  std::string_view null_means = {};        // what an explicit null sets; empty: the default
  bool required = false;                   // the command cannot start without it
  bool positional = false;                 // also a positional argument, in the order of the rows
  bool secret = false;                     // never printed
  bool common = false;                     // in the short help of a command with many options
  bool may_stand_alone = false;            // a text that is "true" without a value
  bool lora_only = false;                  // a key of finetune_lora alone
  bool* automatic = nullptr;  // set if the value is auto, which this flag accepts; resolved
                              // later
  bool joins_list = false;    // a text that may be given as a list; joined by commas
  std::string (*normalise)(std::string_view) = nullptr;
  std::function<void()> selected = {};  // called when this row chose a class, to load its defaults
};

// A value as it was read.
struct Value {
  enum class Kind { Null, Text, List };
  Kind kind = Kind::Null;
  std::string text = {};
  bool quoted = false;
  bool is_tree = false;  // the text is a tree in one line
  std::vector<std::string> items = {};
};

// Stores `value`. Returns the fault as a sentence («"five" is not a whole number from 1») and
// stores nothing, or returns an empty text. Null empties an optional and otherwise restores the
// value of `fallback`, the same row of a default struct.
std::string store(const Row& row, const Value& value, const Row& fallback);

// `value`, given under the alias `key`, as the row's own key takes it.
Value reworded(const Row& row, std::string_view key, const Value& value);

// Whether `value` unsets the option: null, or the word none if an unset member is shown as none and
// none is not a value itself.
bool unsets(const Row& row, const Value& value, const Row& fallback);

// The value as YAML (quoted where needed) and for people (unquoted, "none").
std::string yaml_text(const Row& row);
std::string plain_text(const Row& row);
// False for an empty text or optional.
bool holds_value(const Row& row);

// "from 1 to 1048576", of a number or a size in bytes; empty without limits.
std::string range_text(const Row& row);

// "INT", "FLOAT", "PATH", … for help.
std::string_view value_name(const Row& row);
bool is_flag(const Row& row);
// Whether `key`, an alias of the row, takes true or false.
bool is_flag(const Row& row, std::string_view key);
bool is_optional(const Row& row);
std::string option_name(const Row& row);  // "train.max_steps", without dashes

// The row with this key or alias, or nullptr.
const Row* find_row(const std::vector<Row>& rows, std::string_view key);

}  // namespace snug::recipe
