// SPDX-License-Identifier: Apache-2.0
#include "lab/lab.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/terminal.h"
#include "lab/report/reports.h"
#include "lab/report/row_view.h"
#include "lab/report/verdict.h"
#include "lab/run/lab_folder.h"
#include "lab/run/lab_run.h"
#include "lab/run/row_process.h"
#include "recipe/print.h"

namespace snug::lab {
namespace {

namespace fs = std::filesystem;
using recipe::LabOptions;
using Words = std::vector<std::string>;

constexpr int kInterruptedCode = 130;  // as a shell has it for Ctrl-C
constexpr int kUnexplainedCode = 4;

// 0: what is printed goes to no terminal.
int terminal_width() {
  return ::isatty(STDOUT_FILENO) == 1 ? terminal_size(STDOUT_FILENO).columns : 0;
}

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  if (!text.ends_with('\n')) std::fputc('\n', stdout);
  std::fflush(stdout);
}

Mode mode_of(const LabOptions& options) {
  if (options.plan && options.scaled)
    throw UserError(
        "--plan and --scaled: --plan plans a suite at full size, --scaled runs it with small "
        "models; give one of them (--scaled --dry_run plans the small models)");
  return options.plan ? Mode::Plan : options.scaled ? Mode::Scaled : Mode::Run;
}

// Options that the action would pass over in silence.
void check_options(const LabOptions& options) {
  const bool runs = options.action == "run";
  const std::pair<bool, const char*> of_run[] = {{options.plan, "plan"},
                                                 {options.scaled, "scaled"},
                                                 {options.dry_run, "dry_run"},
                                                 {!options.rows.empty(), "rows"},
                                                 {!options.device.empty(), "device"},
                                                 {!options.memory_budget.empty(), "memory_budget"},
                                                 {!options.set.empty(), "set"},
                                                 {!options.out_dir.empty(), "out_dir"},
                                                 {options.as_published, "as_published"},
                                                 {options.row_timeout > 0, "row_timeout"},
                                                 {options.restart, "restart"}};
  for (const auto& [is_given, key] : of_run)
    if (!runs && is_given)
      throw UserError("--{} applies to snug lab run, not to {}", key, options.action);
  if (options.worksheet && options.action != "report")
    throw UserError("--worksheet applies to snug lab report, not to {}", options.action);
  if (!options.device.empty() && !options.plan)
    throw UserError("--device {}: applies to --plan only; a run uses this machine's devices",
                    options.device);
}

void want_targets(const LabOptions& options, size_t least, size_t most, const char* what) {
  if (options.targets.size() >= least && options.targets.size() <= most) return;
  throw UserError("snug lab {} needs {}, and {} {} given", options.action, what,
                  options.targets.empty() ? "none" : std::to_string(options.targets.size()),
                  options.targets.size() == 1 ? "was" : "were");
}

std::vector<fs::path> wanted_suites(const LabOptions& options) {
  want_targets(
      options, 1, SIZE_MAX,
      "suites: names from snug lab list, files, or all (snug lab run litgpt-single --plan)");
  std::vector<fs::path> files;
  for (const std::string& target : options.targets) {
    if (target == "all")
      std::ranges::copy(suite_files(), std::back_inserter(files));
    else
      files.push_back(find_suite(target));
  }
  // One that is named twice is one.
  std::vector<fs::path> once;
  for (fs::path& file : files)
    if (std::ranges::find(once, file) == once.end()) once.push_back(std::move(file));
  return once;
}

fs::path folder_of(const LabOptions& options, const Suite& suite, Mode mode, bool is_only) {
  const fs::path by_default = default_folder(suite, mode, options.device);
  if (options.out_dir.empty()) return by_default;
  return is_only ? fs::path(options.out_dir) : options.out_dir / by_default.filename();
}

// Whether the outcome differs from the published or expected one. (How far figures are off is left
// to the report.)
bool has_other_outcome(const LabRun& run, const Row& row, const RowResult& result) {
  const bool ended = result.outcome == Outcome::Ok || result.outcome == Outcome::OutOfMemory;
  if (!ended || row.expected == Expected::Unknown) return false;
  const bool is_count = run.mode == Mode::Plan && result.like.has_value();
  const bool fits = is_count ? result.like->fits : result.outcome == Outcome::Ok;
  return fits != (row.expected == Expected::Ok) && verdict_of(run, row).verdict == Verdict::Differs;
}

int exit_code_of(const LabRun& run) {
  int code = 0;
  for (const Row& row : run.rows) {
    const RowResult* result = run.find(row.id);
    if (result->outcome == Outcome::Crashed || result->outcome == Outcome::TimedOut) return 1;
    const bool is_explained = is_explained_run(run) && !row.explained.empty();
    const bool is_unexplained = !is_explained && has_other_outcome(run, row, *result);
    if (result->outcome == Outcome::Error)
      code = 2;
    else if (is_unexplained && code == 0)
      code = kUnexplainedCode;
  }
  return code;
}

std::string commands_text(const LabRun& run) {
  std::string text = "Commands\n";
  for (const RowResult& result : run.results)
    if (!result.command.empty()) text += fmt::format("  {}\n    {}\n", result.id, result.command);
  return text;
}

void print_table(const LabRun& run, const LabOptions& options) {
  const Shown what = options.dry_run ? Shown::PlansOfRuns : Shown::Results;
  print("\n" + report_text(run, terminal_width(), what));
  if (options.dry_run) print("\n" + commands_text(run));
}

void print_end(const LabRun& run, const LabOptions& options, bool was_interrupted) {
  if (options.dry_run) return;
  print(fmt::format("\nThe report is {0}/report.html (and report.md, report.csv, report.json)",
                    run.folder.string()));
  if (!was_interrupted) return;
  const auto done = std::ranges::count_if(run.results, [](const RowResult& result) {
    return result.outcome != Outcome::NotRun && result.outcome != Outcome::Interrupted;
  });
  print(fmt::format("Stopped on request: {} of {} rows are done; the same command continues there",
                    done, run.rows.size()));
}

// A runner for each suite that has some of the rows. All are checked before the first starts.
std::deque<LabRunner> runners_of(const LabOptions& options, const Words& words,
                                 const DeviceQuestions& devices) {
  const Mode mode = mode_of(options);
  std::vector<Suite> suites;
  for (const fs::path& file : wanted_suites(options)) suites.push_back(read_suite(file));
  if (options.as_published) std::ranges::for_each(suites, follow_original);
  check_patterns(suites, options.rows);
  std::deque<LabRunner> runners;
  for (Suite& suite : suites) {
    LabOptions of_suite = options;
    of_suite.rows = patterns_of(suite, options.rows);
    if (of_suite.rows.empty() && !options.rows.empty()) continue;
    const fs::path folder = folder_of(options, suite, mode, suites.size() == 1);
    runners.emplace_back(of_suite, std::move(suite), mode, folder, recipe::print_command(words),
                         devices);
  }
  return runners;
}

int run_suites(const LabOptions& options, const Words& words, const DeviceQuestions& devices) {
  std::deque<LabRunner> runners = runners_of(options, words, devices);
  const StopWish stop;
  Progress progress(stderr, ::isatty(STDERR_FILENO) == 1);
  nlohmann::json all = nlohmann::json::array();
  int code = 0;
  for (LabRunner& runner : runners) {
    if (runners.size() > 1) progress.say("\n" + runner.title());
    const LabRun& run = runner.run(progress);
    // Shown before it is written: a disk may be full.
    if (options.json)
      all.push_back(nlohmann::json::parse(report_json(run)));
    else
      print_table(run, options);
    try {
      runner.end();
    } catch (const UserError&) {
      if (options.json) print(all.dump(1));
      throw;
    }
    if (!options.json) print_end(run, options, runner.was_interrupted());
    if (runner.was_interrupted()) {
      code = kInterruptedCode;
      break;
    }
    const int of_suite = exit_code_of(run);
    if (code == 0 || (of_suite != 0 && of_suite < code)) code = of_suite;  // 1 before 2 before 4
  }
  const bool is_one = options.targets.size() == 1 && all.size() == 1;
  if (options.json) print((is_one ? all.front() : all).dump(1));
  return code;
}

int list(const LabOptions& options) {
  if (options.targets.empty()) {
    const std::vector<fs::path> files = suite_files();
    print(options.json ? list_suites_json(files) : list_suites_text(files, terminal_width()));
    return 0;
  }
  for (const fs::path& file : wanted_suites(options)) {
    const Suite suite = read_suite(file);
    print(options.json ? list_rows_json(suite) : list_rows_text(suite, terminal_width()));
  }
  return 0;
}

int report_again(const LabOptions& options) {
  want_targets(options, 1, SIZE_MAX, "folders of lab runs, as in out/lab/SUITE");
  for (const std::string& target : options.targets) {
    const LabRun run = read_lab_run(target);
    if (options.json)
      print(report_json(run));
    else
      print_table(run, options);
    write_reports(run);
    if (options.worksheet) write_file_atomically(run.folder / "worksheet.md", worksheet(run));
    if (options.json) continue;
    print_end(run, options, false);
    if (options.worksheet) print("The worksheet is " + (run.folder / "worksheet.md").string());
  }
  return 0;
}

// Any number of ordinary runs, or two lab runs.
int compare(const LabOptions& options) {
  want_targets(options, 2, SIZE_MAX, "folders of runs: two lab runs, or two or more others");
  for (const std::string& target : options.targets)
    if (!std::filesystem::exists(target)) throw UserError("{} does not exist", target);
  const auto is_run = [](const std::string& target) { return !run_record_in(target).empty(); };
  if (std::ranges::all_of(options.targets, is_run)) {
    std::vector<NamedRun> runs;
    for (const std::string& target : options.targets)
      runs.push_back({target, report::read_run_json(run_record_in(target))});
    print(options.json ? compare_runs_json(runs) : compare_runs_text(runs));
    return 0;
  }
  if (const auto other = std::ranges::find_if(options.targets, is_run);
      other != options.targets.end())
    throw UserError(
        "{} is an ordinary run, and some of the others are lab runs; compare runs of one kind",
        *other);
  want_targets(options, 2, 2, "two folders of lab runs, as in out/lab/SUITE");
  const LabRun first = read_lab_run(options.targets[0]);
  const LabRun second = read_lab_run(options.targets[1]);
  if (rows_in_both(first, second) == 0)
    throw UserError(
        "the runs have no row in common: {} is a run of the suite {}, and {} of {}; compare two "
        "runs of one suite",
        options.targets[0], first.record.suite, options.targets[1], second.record.suite);
  print(options.json ? compare_json(first, second) : compare_text(first, second, terminal_width()));
  return 0;
}

}  // namespace

int lab(const LabOptions& options, const Words& words, const DeviceQuestions& devices) {
  set_verbose(options.verbose);
  check_options(options);
  if (options.action == "list") return list(options);
  if (options.action == "report") return report_again(options);
  if (options.action == "compare") return compare(options);
  return run_suites(options, words, devices);
}

}  // namespace snug::lab
