// A recipe of another program on its way to settings of snug. Every key that it has is looked up in
// the program's table (KeyRow), and ends in one of four ways: as a setting, as a setting with a
// remark, as a remark that it has no effect, or refused. What several keys say together is read by
// the program's `finish`.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/import/import.h"
#include "recipe/yaml.h"

namespace snug::recipe {

class Draft;

// A key that the file has.
struct Found {
  std::string key;  // dotted
  YamlNode node;
};

// What becomes of a key, or of several that are treated alike.
struct KeyRow {
  enum class Way {
    Same,   // our option takes the value as it stands
    Words,  // our option takes another word: `detail` lists theirs=ours
    By,     // `by` translates the value
    Read,   // `finish` reads it together with other keys
    Idle,   // no effect here; `detail` says why
    Off,    // refused unless it is off; `detail` says why
  };
  std::string_view theirs;  // keys, separated by spaces; a dot leads into a mapping
  Way way = Way::Read;
  std::string_view ours = {};    // our option
  std::string_view detail = {};  // see Way
  std::string_view unset = {};   // the value that their program takes without the key
  void (*by)(Draft&, const Found&) = nullptr;
};

struct Program {
  std::string_view name;                // as its makers write it
  std::vector<std::string_view> signs;  // a recipe with one of these (dotted) keys is this
                                        // program's; "key=words": if the key says one of the words
  std::vector<std::span<const KeyRow>> tables;                // the first that has a key counts
  void (*prepare)(YamlNode& tree, const Program&) = nullptr;  // before its keys are looked up
  void (*finish)(Draft&) = nullptr;

  // nullptr for an unknown key.
  const KeyRow* row_of(std::string_view key) const;
  std::vector<std::string> keys() const;
};

// In the order in which they are tried.
std::span<const Program> programs();

class Draft {
 public:
  Draft(const Program& program, std::string file) : program_(program), file_(std::move(file)) {}

  void read(const YamlNode& tree);
  void merge(Imported other);  // of a file that this one names
  Imported take();

  const std::string& file() const { return file_; }
  // The key with a value; nullptr if it is missing or null.
  const Found* find(std::string_view key) const;
  bool is_null(std::string_view key) const;  // there, with no value
  // The text of a scalar, else what the program takes without the key; empty: neither.
  std::string text(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  // Whether it is given and says more than false, none, zero or nothing.
  bool on(std::string_view key) const;

  // `theirs` is the key that says so.
  void set(std::string_view ours, Value value, std::string_view theirs);
  void set(std::string_view ours, std::string_view value, std::string_view theirs);
  void differs(std::string_view theirs, std::string why);
  void idle(std::string_view theirs, std::string why);
  // Whether `full` was set.
  bool trains_all_weights() const;
  void note_liger() { out_.has_liger = true; }
  // Its settings, DeepSpeed's own defaults to begin with.
  DeepSpeed& deepspeed();
  // The fault is waived if the command line sets `ours`.
  void refuse(std::string_view theirs, std::string_view ours, std::string why);

 private:
  void collect(const YamlNode& node, const std::string& key);
  void apply(const KeyRow& row, std::string_view key);
  std::string where(std::string_view theirs) const;
  void drop_adapters_of_full();

  const Program& program_;
  std::string file_;
  std::vector<Found> found_;
  Imported out_;
};

bool is_on(const YamlNode& node);
// The scalar below `key` of a mapping; empty: there is none.
std::string text_in(const YamlNode& map, std::string_view key);
const YamlNode* find_in(const YamlNode& map, std::string_view key);
// The same for a dotted key.
const YamlNode* find_at(const YamlNode& tree, std::string_view path);
// The pair of `theirs` in "theirs=ours theirs=ours"; empty: none.
std::string_view word_for(std::string_view pairs, std::string_view theirs);
// The words of a text with spaces between them.
std::vector<std::string_view> words_of(std::string_view text);

}  // namespace snug::recipe
