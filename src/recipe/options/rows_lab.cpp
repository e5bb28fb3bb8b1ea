// Rows of lab, monitor, doctor and verify, and the suites that lab finds.
// SPDX-License-Identifier: Apache-2.0

#include <cstdlib>
#include <map>
#include <sstream>
#include <system_error>
#include <vector>

#include "base/program.h"
#include "recipe/options/rows.h"

namespace snug::recipe {
namespace {

constexpr std::string_view kLab = "Suite";
constexpr std::string_view kWhat = "Runs and reports";
constexpr std::string_view kShown = "Output";

std::vector<std::string> suites_to_offer(std::string_view action) {
  if (action != "run" && action != "list") return {};
  std::vector<std::string> names = suite_names();
  names.emplace_back("all");
  return names;
}

}  // namespace

std::vector<Row> lab_rows(LabOptions& o) {
  return {
      {.theme = kLab,
       .key = "action",
       .slot = &o.action,
       .help = "run: run or plan suites; list: list the suites, or the rows of one; report: "
               "rewrite the report of a lab run; compare: compare runs side by side",
       .choices = {"run", "list", "report", "compare"},
       .required = true,
       .positional = true},
      {.theme = kLab,
       .key = "targets",
       .slot = &o.targets,
       .help = "suites: names from snug lab list, files, or all; for report and compare: folders "
               "of runs",
       .kind = TextKind::File,
       .offered_after = suites_to_offer,
       .positional = true},
      {.theme = kLab,
       .key = "rows",
       .slot = &o.rows,
       .help = "rows to run: ids or patterns, as in 'ls01*,ls08*'; none: all",
       .joins_list = true},
      {.theme = kWhat,
       .key = "plan",
       .slot = &o.plan,
       .help =
           "plan each row at full size for the suite's device; trains nothing and needs no GPU"},
      {.theme = kWhat,
       .key = "scaled",
       .slot = &o.scaled,
       .help = "run the suite on this machine with small models, under a memory budget that makes "
               "the rows published as out of memory run out of memory"},
      {.theme = kWhat,
       .key = "dry_run",
       .slot = &o.dry_run,
       .help = "plan the rows and print their table and commands; train nothing and write nothing"},
      {.theme = kWhat,
       .key = "device",
       .slot = &o.device,
       .help = "device to plan for instead of the suite's: a profile name or a YAML file; "
               "published figures are shown but not compared"},
      {.theme = kWhat,
       .key = "memory_budget",
       .slot = &o.memory_budget,
       .help = "memory budget of each row, instead of the device's or the suite's",
       .min = kLeastMemory,
       .max = kMostMemory,
       .kind = TextKind::Bytes},
      {.theme = kWhat,
       .key = "set",
       .slot = &o.set,
       .help = "KEY=VALUE: an option for every row, which overrides the row's own: --set "
               "train.max_steps=10",
       .kind = TextKind::Verbatim},
      {.theme = kWhat,
       .key = "as_published",
       .slot = &o.as_published,
       .help = "follow the original in all that changes numbers, as the suite's as_published says: "
               "BLIP-2's loss counts padding, for example"},
      {.theme = kWhat,
       .key = "row_timeout",
       .slot = &o.row_timeout,
       .help =
           "seconds after which a row is stopped and counted as timed out; 0: the suite's limit",
       .min = 0,
       .max = kMostSeconds},
      {.theme = kWhat,
       .key = "restart",
       .slot = &o.restart,
       .help = "run every row again, even those that are done"},
      {.theme = kShown,
       .key = "worksheet",
       .slot = &o.worksheet,
       .help = "with report: write worksheet.md too, a sheet with what was measured or planned, "
               "room for guesses, and questions on the rows",
       .aliases = {"answers"}},
      {.theme = kShown,
       .key = "out_dir",
       .slot = &o.out_dir,
       .help = "directory for the run and its report (default: out/lab/SUITE, with -plan, "
               "-plan-DEVICE or -scaled appended)",
       .kind = TextKind::Directory},
      {.theme = kShown, .key = "json", .slot = &o.json, .help = "print the result as JSON"},
      {.theme = kShown, .key = "verbose", .slot = &o.verbose, .help = "print more details"},
  };
}

std::vector<Row> monitor_rows(MonitorOptions& o) {
  return {
      {.theme = kShown,
       .key = "run",
       .slot = &o.run,
       .help = "out_dir of the run, or folder of a lab run (default: the newest run under out/)",
       .kind = TextKind::Directory,
       .positional = true},
      {.theme = kShown,
       .key = "interval",
       .slot = &o.interval,
       .help = "seconds between updates",
       .min = 0.1,
       .max = 86400},
      {.theme = kShown,
       .key = "once",
       .slot = &o.once,
       .help = "print the state once, as plain text, and exit"},
      {.theme = kShown,
       .key = "json",
       .slot = &o.json,
       .help = "print one line of JSON per update instead of the display"},
  };
}

std::vector<Row> doctor_rows(DoctorOptions& o) {
  return {
      {.theme = kShown,
       .key = "out_dir",
       .slot = &o.out_dir,
       .help = "directory for runs, whose disk is checked",
       .kind = TextKind::Directory},
      {.theme = kShown, .key = "json", .slot = &o.json, .help = "print the findings as JSON"},
  };
}

std::vector<Row> verify_rows(VerifyOptions& o) {
  return {
      {.theme = kShown,
       .key = "folder",
       .slot = &o.folder,
       .help = "a run's out_dir, a checkpoint or a model that snug wrote; subfolders are included",
       .kind = TextKind::Directory,
       .required = true,
       .positional = true},
      {.theme = kShown, .key = "json", .slot = &o.json, .help = "print the result as JSON"},
  };
}

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> suite_folders() {
  std::vector<fs::path> folders;
  if (const char* chosen = std::getenv("SNUG_SUITES")) {
    std::istringstream text(chosen);
    for (std::string folder; std::getline(text, folder, ':');) folders.emplace_back(folder);
  }
  folders.emplace_back("recipes/lab");
  for (const fs::path& place : shipped_places("recipes/lab")) folders.push_back(place);
  return folders;
}

}  // namespace

std::vector<fs::path> suite_files() {
  std::map<std::string, fs::path> files;  // by name
  for (const fs::path& folder : suite_folders()) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
      if (entry.path().extension() == ".yaml") files.emplace(entry.path().stem(), entry.path());
  }
  std::vector<fs::path> sorted;
  for (const auto& [name, file] : files) sorted.push_back(file);
  return sorted;
}

std::vector<std::string> suite_names() {
  std::vector<std::string> names;
  for (const fs::path& file : suite_files()) names.push_back(file.stem().string());
  return names;
}

}  // namespace snug::recipe
