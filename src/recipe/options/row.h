// One option, declared once. A row binds a member of an option struct to its key, its range or
// choices and the sentence that explains it. Reading YAML and options, printing the resolved
// recipe,
// --help, the reference page, shell completion and "did you mean" all walk the same rows, so that
// none of them can know an option that the others do not. The default is what the freshly made
// struct holds.
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

// Texts, one added by each setting of the key.
using ListSlot = std::vector<std::string>*;

using Slot = std::variant<bool*, int64_t*, uint64_t*, double*, std::string*, std::optional<bool>*,
                          std::optional<int64_t>*, std::optional<double>*,
                          std::optional<std::string>*, PairSlot, ListSlot>;

// A word that one of a row's other keys takes, and what it says in the row's own: Lightning's
// act_ckpt: true is activation_checkpointing: all. An empty `value` is null.
struct Rewording {
  std::string_view key, word, value;
};

// How a text is meant: what completion offers and which check a value must pass.
enum class TextKind { Word, File, Directory, Bytes, Verbatim };

struct Row {
  std::string_view theme = {};
  std::string key = {};
  Slot slot = {};
  std::string_view help = {};
  double min = -1e300, max = 1e300;             // numbers, both ends included
  std::vector<std::string> choices = {};        // texts; empty = any
  bool open = false;                            // choices are examples: other words are taken too
  std::vector<std::string> quiet_choices = {};  // taken as well, and offered nowhere
  TextKind kind = TextKind::Word;
  // Of a bare word after the command's first one: what completion offers there; nothing: files.
  std::vector<std::string> (*offered_after)(std::string_view first) = nullptr;
  std::string shown = {};                 // the option as help writes it, when shorter than the key
  std::vector<std::string> aliases = {};  // other keys for the same member
  std::vector<Rewording> rewordings = {};  // of what they take
  std::string_view null_means = {};        // what an explicit null sets; empty = the default
  bool required = false;                   // the command cannot start without it
  bool positional = false;                 // also taken as a bare word, in the order of the rows
  bool secret = false;                     // never printed
  bool common = false;                     // in the short help of a command with many options
  bool may_stand_alone = false;            // a text that is "true" when no value follows
  bool lora_only = false;                  // a key of finetune_lora alone
  bool* automatic = nullptr;  // a flag takes the word auto too, which is noted here; who makes the
                              // row says later what it comes to
  bool joins_list = false;    // a text that a list of words may give, joined by commas
  std::string (*normalise)(std::string_view) = nullptr;
  std::function<void()> selected = {};  // this row chose a class: load that class's defaults
};

// A value as it was found.
struct Value {
  enum class Kind { Null, Text, List };
  Kind kind = Kind::Null;
  std::string text = {};
  bool quoted = false;
  std::vector<std::string> items = {};
};

// Stores `value`; returns the fault as a sentence («"five" is not a whole number from 1»), or
// empty. Nothing is stored when there is a fault. Null restores `fallback`'s value (the row of a
// default struct with the same key) or empties an optional.
std::string store(const Row& row, const Value& value, const Row& fallback);

// `value`, found under `key`, in the row's own words.
Value reworded(const Row& row, std::string_view key, const Value& value);

// Whether `value` takes a choice back rather than making one: null, or the word none where a member
// that holds nothing is shown so and none is no value of its own.
bool unsets(const Row& row, const Value& value, const Row& fallback);

// The member's value as YAML (quoted where needed) and as a person reads it (unquoted, "none").
std::string yaml_text(const Row& row);
std::string plain_text(const Row& row);
// Whether the member holds a value: an empty text or optional does not.
bool holds_value(const Row& row);

// "from 1 to 1048576" of a number or a size in bytes; empty where any will do.
std::string range_text(const Row& row);

// "INT", "FLOAT", "PATH", … for help.
std::string_view value_name(const Row& row);
bool is_flag(const Row& row);
// Whether it is true or false that stands after `key`.
bool is_flag(const Row& row, std::string_view key);
bool is_optional(const Row& row);
std::string option_name(const Row& row);  // "train.max_steps", without dashes

// The row with this key or alias, or nullptr.
const Row* find_row(const std::vector<Row>& rows, std::string_view key);

}  // namespace snug::recipe
