// Options of lab, monitor and doctor.
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "config/rows.h"
#include "config/suite_names.h"

namespace snug::config {
namespace {

constexpr std::string_view kLab = "Suite";
constexpr std::string_view kWhat = "What is done with it";
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
       .help =
           "run: run (or plan) suites; list: what suites there are, or the rows of one; report: "
           "write the report of a run's folder again; compare: runs side by side",
       .choices = {"run", "list", "report", "compare"},
       .required = true,
       .positional = true},
      {.theme = kLab,
       .key = "targets",
       .slot = &o.targets,
       .help =
           "suites: names as in snug lab list, files, or all; of report and compare: folders of "
           "runs",
       .kind = TextKind::File,
       .offered_after = suites_to_offer,
       .positional = true},
      {.theme = kLab,
       .key = "rows",
       .slot = &o.rows,
       .help = "only these rows: ids or patterns, as in 'ls01*,ls08*'",
       .joins_list = true},
      {.theme = kWhat,
       .key = "plan",
       .slot = &o.plan,
       .help = "plan each row at full size on the suite's device; runs nothing, needs no GPU"},
      {.theme = kWhat,
       .key = "scaled",
       .slot = &o.scaled,
       .help =
           "run the suite's scaled rows on this machine: small models, and a budget under which "
           "those run out of memory that were published so"},
      {.theme = kWhat,
       .key = "dry_run",
       .slot = &o.dry_run,
       .help = "plan the rows and print their table and commands; run and write nothing"},
      {.theme = kWhat,
       .key = "device",
       .slot = &o.device,
       .help = "plan for this device instead of the suite's: a profile's name or a YAML file; "
               "what was published is shown and not judged"},
      {.theme = kWhat,
       .key = "memory_budget",
       .slot = &o.memory_budget,
       .help = "the memory each row may take, instead of the device's or the suite's",
       .kind = TextKind::Bytes},
      {.theme = kWhat,
       .key = "set",
       .slot = &o.set,
       .help = "KEY=VALUE, an option for every row after its own: --set train.max_steps=10",
       .kind = TextKind::Verbatim},
      {.theme = kWhat,
       .key = "row_timeout",
       .slot = &o.row_timeout,
       .help = "seconds after which a row is ended and counted as timed out; 0: the suite's",
       .min = 0},
      {.theme = kWhat,
       .key = "restart",
       .slot = &o.restart,
       .help = "do every row again, also those that are done"},
      {.theme = kShown,
       .key = "out_dir",
       .slot = &o.out_dir,
       .help = "the directory of the run and its report (default: out/lab/SUITE, with -plan, "
               "-plan-DEVICE or -scaled)",
       .kind = TextKind::Directory},
      {.theme = kShown, .key = "json", .slot = &o.json, .help = "print the result as JSON"},
      {.theme = kShown, .key = "verbose", .slot = &o.verbose, .help = "say more"},
  };
}

std::vector<Row> monitor_rows(MonitorOptions& o) {
  return {
      {.theme = kShown,
       .key = "run",
       .slot = &o.run,
       .help = "the run's out_dir, or a lab run's folder (default: the newest run under out/)",
       .kind = TextKind::Directory,
       .positional = true},
      {.theme = kShown,
       .key = "interval",
       .slot = &o.interval,
       .help = "seconds between two looks",
       .min = 0.1,
       .max = 86400},
      {.theme = kShown,
       .key = "once",
       .slot = &o.once,
       .help = "show the state once, as plain text, and end"},
      {.theme = kShown,
       .key = "json",
       .slot = &o.json,
       .help = "one line of JSON a look instead of a picture"},
  };
}

std::vector<Row> doctor_rows(DoctorOptions& o) {
  return {
      {.theme = kShown,
       .key = "out_dir",
       .slot = &o.out_dir,
       .help = "the directory runs go to: its disk is looked at",
       .kind = TextKind::Directory},
      {.theme = kShown, .key = "json", .slot = &o.json, .help = "print the findings as JSON"},
  };
}

}  // namespace snug::config
