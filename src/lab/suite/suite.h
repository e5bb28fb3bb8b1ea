// A suite of experiments: rows of options for a finetune command, with expected outcomes and
// published figures. Reading its file resolves from, matrix, sweeps and models into a plain list of
// rows, each with all of its options.
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

// Options of a row's command: a recipe's key and the text of its value.
using Settings = std::vector<std::pair<std::string, std::string>>;

// "peak memory of this row is less than that of row `than`".
struct Comparison {
  enum class Quantity { Memory, Time };
  enum class Relation { Less, More, Same };  // Same: within a tenth
  Quantity quantity = Quantity::Memory;
  Relation relation = Relation::Less;
  std::string than;  // a row's id
};

// The published figures; empty or absent if there are none. Memory in bytes; lists: one per rank.
struct Published {
  std::vector<double> allocated_after_forward;
  std::vector<double> peak_allocated;
  std::vector<double> reserved;
  std::optional<double> parameter_bytes;
  std::optional<double> iteration_seconds;
  std::optional<double> tokens_per_second;     // over all devices
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
  Settings original_options;         // where the original's numbers are made otherwise
  std::string device;                // profile for plans
  std::string price_per_hour;        // of one of that device, "2.49 USD"; empty: not known
  std::string memory_budget;         // of plans at full size; empty: the device's
  std::string scaled_memory_budget;  // of scaled runs
  std::string like;                  // litgpt | lightning; empty: not compared
  Expected expected = Expected::Unknown;
  std::vector<Comparison> comparisons;
  Published published;
  bool time_is_fitted = false;  // the cost model's shares were fitted on the published time
  std::string hardware;         // of the published figures, as text
  std::vector<std::string> notes;
  std::vector<std::string> explained;  // why the outcome differs from the published one, if it does
  std::string not_run;                 // why the row is only listed; empty: it is run
  std::string group;                   // id of its sweep or search
  std::optional<double> value;         // of the group's option
};

// Rows that form one curve: the same run with a growing value. A sweep ends at its first row that
// runs out of memory; a search tries values until it finds the largest that fits.
struct Group {
  enum class Kind { Sweep, Search };
  Kind kind = Kind::Sweep;
  std::string id;
  std::string title;
  std::string over;  // the option that grows, e.g. "train.micro_batch_size"; searches also: "model"
  // Only of searches, whose rows search_row() makes:
  Row base;                           // without the value
  std::vector<std::string> together;  // options that take the same value
  int64_t smallest = 1, largest = 1;  // inclusive
  std::vector<std::string> models;    // if over model: by size; values are positions, from 1
};

// An architecture at full size and scaled down.
struct ModelChoice {
  std::string checkpoint;     // the folder that real runs read
  std::string config;         // for plans; an existing path
  std::string scaled_config;  // for scaled runs; an existing path
};

struct Suite {
  std::string name;
  std::string title;
  std::string about;
  std::string source;  // where the figures were published, as text
  std::filesystem::path file;
  std::string device;
  double row_timeout_seconds = 0;  // 0: none
  double scaled_row_timeout_seconds = 0;
  std::string scaled_about;
  std::map<std::string, ModelChoice> models;
  std::vector<Group> groups;
  std::vector<Row> rows;  // searches have none until they run
};

// Throws UserError with all faults of the file, each with its line and how to fix it: unknown keys
// (with near ones), a `from` that is not an earlier row, ids that are duplicate or cannot name a
// folder, options that the command does not have or values that it does not accept.
Suite read_suite(const std::filesystem::path& file);

// Makes every row's numbers as the original's: its original_options become options.
void follow_original(Suite& suite);

// The suites' files in $SNUG_SUITES, in recipes/lab of the working directory, and among those
// installed with the program; the first file with a name wins.
std::vector<std::filesystem::path> suite_files();

// A name of suite_files() or a path. Throws UserError that lists the known names.
std::filesystem::path find_suite(const std::string& name_or_path);

// Those patterns of "ls01*,fs-*" that match rows of this suite; empty: none match, or none are
// given.
std::string patterns_of(const Suite& suite, const std::string& patterns);
// Throws UserError for a pattern that matches in none of the suites.
void check_patterns(const std::vector<Suite>& suites, const std::string& patterns);

// "ls01*,ls08*" -> those rows, in the suite's order; a sweep's name means all its rows; empty: all.
// Throws UserError for a pattern that matches no row, sweep or search.
std::vector<const Row*> chosen_rows(const Suite& suite, const std::string& patterns);
// The searches that match.
std::vector<const Group*> chosen_searches(const Suite& suite, const std::string& patterns);

// The row of a search that tries `value` (from group.smallest to group.largest): id "ID-VALUE", or
// "ID-MODEL" over models.
Row search_row(const Group& group, int64_t value);

// The arguments that plan or run this row: "plan …" and "finetune_full …". `extra` are the user's
// --set; an option that is set twice, even under different names, appears once, with its last
// value. Plans have no out_dir; they are for row.device in Mode::Plan and for this machine
// otherwise. In Mode::Scaled, throws UserError for a row whose model has no scaled config.
std::vector<std::string> plan_words(const Suite& suite, const Row& row, Mode mode,
                                    const Settings& extra);
std::vector<std::string> run_words(const Suite& suite, const Row& row, Mode mode,
                                   const Settings& extra, const std::filesystem::path& out_dir);

}  // namespace snug::lab
