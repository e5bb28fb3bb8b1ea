// A suite of experiments as its file says it: rows that are options of a finetune command, what
// each is expected to do, and what was published of it. Reading resolves everything that is only a
// way of writing (from, matrix, sweeps, models): what comes out is a plain list of rows, each with
// all of its options.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace snug::lab {

enum class Mode { Plan, Run, Scaled };
const char* name(Mode mode);

enum class Expected { Ok, OutOfMemory, Unknown };
const char* name(Expected expected);

// An option of the row's command: a recipe's key and the text that stands after it.
using Settings = std::vector<std::pair<std::string, std::string>>;

// "peak memory of this row is less than that of row `than`".
struct Comparison {
  enum class Quantity { Memory, Time };
  enum class Relation { Less, More, Same };  // Same: within a tenth
  Quantity quantity = Quantity::Memory;
  Relation relation = Relation::Less;
  std::string than;  // a row's id
};

// What the source printed; empty or absent: it printed none. Bytes are bytes. Lists: one a rank.
struct Published {
  std::vector<double> allocated_after_forward;
  std::vector<double> peak_allocated;
  std::vector<double> reserved;
  std::optional<double> parameter_bytes;
  std::optional<double> iteration_seconds;
  std::optional<double> teraflops_per_second;  // over all devices
  std::optional<double> device_use;            // 0..1, mean over devices
  std::optional<double> device_use_spread;     // plus-minus
  std::optional<double> epoch_seconds;
  std::optional<double> last_loss;

  bool empty() const;
};

struct Row {
  std::string id;
  std::string title;
  std::string change;                // in words, against `from`; empty: as its options say
  std::string from;                  // id of the row that this one differs from; empty: none
  std::string model;                 // name in the suite's `models`
  std::string command;               // finetune_full | finetune
  Settings options;                  // all of them, in every mode; the model's own are not in here
  Settings plan_options;             // after those, when planned
  Settings run_options;              // after those, when run at full size
  Settings scaled_options;           // after those, when scaled
  std::string device;                // profile for plans
  std::string memory_budget;         // of plans at full size; empty: the device's
  std::string scaled_memory_budget;  // of scaled runs
  std::string like;                  // litgpt | lightning; empty: not compared
  Expected expected = Expected::Unknown;
  std::vector<Comparison> comparisons;
  Published published;
  std::string hardware;  // that it was published for, in words
  std::vector<std::string> notes;
  std::vector<std::string>
      explained;                // why it does not come out as published, said where it does not
  std::string not_run;          // why the row is listed and never run; empty: it is run
  std::string group;            // id of its sweep or search
  std::optional<double> value;  // of what the group is over
};

// Rows that belong together as one curve: the same run over a growing value. A sweep ends at its
// first row that runs out of memory; a search tries values until it knows the largest that fits.
struct Group {
  enum class Kind { Sweep, Search };
  Kind kind = Kind::Sweep;
  std::string id;
  std::string title;
  std::string
      over;  // the option that grows, as in "train.micro_batch_size"; of searches also model
  // Of searches, whose rows search_row() makes.
  Row base;                           // without the value
  std::vector<std::string> together;  // options that take the same value
  int64_t smallest = 1, largest = 1;  // both may be tried
  std::vector<std::string> models;    // over model: by size; values are places in here, from 1
};

// The same architecture at full size and small.
struct ModelChoice {
  std::string checkpoint;     // folder that real runs read
  std::string config;         // for plans; a path that this process can open
  std::string scaled_config;  // for scaled runs; the same
};

struct Suite {
  std::string name;
  std::string title;
  std::string about;
  std::string source;  // where the figures were published, in words
  std::filesystem::path file;
  std::string device;
  double row_timeout_seconds = 0;  // 0: none
  double scaled_row_timeout_seconds = 0;
  std::string scaled_about;
  std::map<std::string, ModelChoice> models;
  std::vector<Group> groups;
  std::vector<Row> rows;  // searches have none until they run
};

// Throws UserError with all faults of the file, each with its line and how to mend it: unknown keys
// (with near ones), a `from` that is no earlier row, ids twice or not usable as a folder's name,
// options that the command does not have or whose value it does not take.
Suite read_suite(const std::filesystem::path& file);

// Names and files of the suites in: $SNUG_SUITES, recipes/lab under the working directory and as it
// came with the program; the first folder with a name wins.
std::vector<std::filesystem::path> suite_files();

// A name of suite_files() or a path. Throws UserError that lists the names there are.
std::filesystem::path find_suite(const std::string& name_or_path);

// Of several suites' rows: the patterns of "ls01*,fs-*" that this one has; empty: none, or none are
// given.
std::string patterns_of(const Suite& suite, const std::string& patterns);
// Throws UserError for a pattern that none of the suites has.
void check_patterns(const std::vector<Suite>& suites, const std::string& patterns);

// "ls01*,ls08*" -> those rows, in the suite's order; a sweep's name means all of its rows; empty:
// all. Throws UserError for a pattern that no row, sweep or search has.
std::vector<const Row*> chosen_rows(const Suite& suite, const std::string& patterns);
// The searches among the same patterns.
std::vector<const Group*> chosen_searches(const Suite& suite, const std::string& patterns);

// The row of a search that tries `value` (from group.smallest to group.largest): id "ID-VALUE", or
// "ID-MODEL" over models.
Row search_row(const Group& group, int64_t value);

// The words after the program's name that plan or run this row: "plan …" and "finetune_full …".
// `extra` are the user's --set; an option that is set twice, also under another of its names,
// stands once, with its last value. `out_dir` is left out of plans. Plans are for row.device in
// Mode::Plan and for this machine otherwise. Throws UserError for a row whose model has no scaled
// sibling in Mode::Scaled.
std::vector<std::string> plan_words(const Suite& suite, const Row& row, Mode mode,
                                    const Settings& extra);
std::vector<std::string> run_words(const Suite& suite, const Row& row, Mode mode,
                                   const Settings& extra, const std::filesystem::path& out_dir);

}  // namespace snug::lab
