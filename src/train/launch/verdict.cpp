// SPDX-License-Identifier: Apache-2.0
#include "train/launch/verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>

#include "base/error.h"
#include "base/log.h"
#include "report/log_file.h"
#include "report/run_page.h"
#include "report/run_record.h"

namespace snug::launch {
namespace {

namespace fs = std::filesystem;

bool failed(const std::optional<RankRecord>& record) {
  return record && record->ending != Ending::Running && record->ending != Ending::Done &&
         record->ending != Ending::Stopped;
}

bool said_itself(const RankRecord& record) {
  return record.ending == Ending::UserError || record.ending == Ending::OutOfMemory ||
         record.ending == Ending::InternalError || record.ending == Ending::Communication;
}

bool is_stop_signal(int number) {
  return number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGUSR1 ||
         number == SIGUSR2 || number == SIGXCPU;
}

bool is_crash(int number) {
  return number == SIGSEGV || number == SIGABRT || number == SIGBUS || number == SIGFPE ||
         number == SIGILL;
}

auto num_alike(const Records& records, const RankRecord& cause) {
  return std::ranges::count_if(records, [&](const auto& record) {
    return record && record->ending == cause.ending && record->text == cause.text;
  });
}

// Lower is nearer to the cause. A rank that fell silent made others lose it; one that was killed
// may have been ended for another's fault, as NCCL's watchdog aborts a process whose peer is gone.
int distance_from_cause(const RankRecord& record) {
  switch (record.ending) {
    case Ending::OutOfMemory:
    case Ending::UserError:
    case Ending::Interrupted:
    case Ending::InternalError:
    case Ending::Exited:
      return 0;
    case Ending::Silent:
      return 1;
    case Ending::Killed:
      return record.signal == SIGTERM ? 4 : record.signal == SIGABRT ? 2 : 1;
    case Ending::Communication:
      return 3;
    default:
      return 5;
  }
}

// On a tie the lowest rank's.
const RankRecord& cause_of(const Records& records) {
  const RankRecord* cause = nullptr;
  for (const auto& record : records)
    if (failed(record) && (!cause || distance_from_cause(*record) < distance_from_cause(*cause)))
      cause = &*record;
  return *cause;
}

std::string who(const RankRecord& record, size_t size) {
  return fmt::format("rank {} of {} ({}, process {})", record.rank, size, record.host,
                     record.process);
}

std::string how_it_ended(const RankRecord& record) {
  const std::string doing = record.activity.empty() ? "" : fmt::format(" [{}]", record.activity);
  const std::string last_words = record.text.empty() ? "" : "; its last output:\n" + record.text;
  switch (record.ending) {
    case Ending::Killed:
      return fmt::format(
          "was killed by {}{}{}{}", signal_text(record.signal), doing,
          record.machine_out_of_memory
              ? "; at that time the kernel killed a process because the machine ran out of memory"
              : "",
          last_words);
    case Ending::Exited:
      return fmt::format("ended with exit code {}{}{}", record.exit_code, doing, last_words);
    case Ending::Silent:
      return fmt::format("{}, and was stopped{}", record.text, doing);
    default:
      return fmt::format("failed{}: {}", doing, record.text);
  }
}

// The newest checkpoint's folder; one that has its name is whole.
fs::path latest_checkpoint(const fs::path& out_dir) {
  fs::path latest;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(out_dir, error))
    if (entry.path().filename().string().starts_with("step-"))
      latest = std::max(latest, entry.path());
  return latest;
}

std::string how_to_go_on(const fs::path& out_dir) {
  const fs::path latest = latest_checkpoint(out_dir);
  if (latest.empty())
    return "There is no checkpoint to resume from yet; --train.save_interval writes them.";
  return fmt::format("The same command with --resume auto resumes from {}.", latest.string());
}

}  // namespace

int exit_code_of(const RankRecord& record) {
  switch (record.ending) {
    case Ending::Running:
    case Ending::Done:
      return 0;
    case Ending::UserError:
      return 2;
    case Ending::OutOfMemory:
      return 3;
    case Ending::Interrupted:
      return Interrupted::kExitCode;
    default:
      return record.machine_out_of_memory ? 3 : 1;
  }
}

bool any_failed(const Records& records) { return std::ranges::any_of(records, failed); }

bool all_done(const Records& records) {
  return std::ranges::all_of(
      records, [](const auto& record) { return record && record->ending == Ending::Done; });
}

Verdict judge(const Records& records, const fs::path& out_dir, bool stop_wanted) {
  if (!any_failed(records)) return {};
  const RankRecord& cause = cause_of(records);
  Verdict verdict{.exit_code = exit_code_of(cause)};
  verdict.out_of_memory = verdict.exit_code == 3;
  if (stop_wanted && is_stop_signal(cause.signal)) {
    verdict.exit_code = Interrupted::kExitCode;
    verdict.message = "stopped on request before the first step was complete";
    return verdict;
  }
  // An error that several ranks report alike is about the run, not about a rank.
  if (cause.ending == Ending::Interrupted ||
      (said_itself(cause) && num_alike(records, cause) > 1)) {
    verdict.message = cause.text;
  } else {
    verdict.rank = cause.rank;
    verdict.message = fmt::format("{} {}\nAll ranks were stopped. The log of this rank is {}.",
                                  who(cause, records.size()), how_it_ended(cause),
                                  log_file(logs_folder(out_dir), cause.rank).string());
  }
  // The same command would run out of memory, or refuse, again.
  const bool would_end_alike = cause.ending == Ending::UserError ||
                               cause.ending == Ending::OutOfMemory ||
                               cause.ending == Ending::Interrupted;
  if (!would_end_alike) verdict.message += "\n" + how_to_go_on(out_dir);
  if (cause.ending == Ending::InternalError || is_crash(cause.signal))
    verdict.message = fmt::format(
        "internal error: {}\nPlease report this with the command you ran.", verdict.message);
  return verdict;
}

Verdict judge_silent_end(const std::string& reason, int exit_code, const fs::path& out_dir) {
  return {.exit_code = exit_code, .message = fmt::format("{}\n{}", reason, how_to_go_on(out_dir))};
}

RunJson::RunJson(const fs::path& out_dir) : path_(out_dir / "run.json") {
  std::error_code error;
  before_ = fs::last_write_time(path_, error);
  if (error) before_ = fs::file_time_type::min();
}

void RunJson::amend(const Verdict& verdict) const {
  std::error_code error;
  const fs::file_time_type now = fs::last_write_time(path_, error);
  if (error || now == before_) return;  // the run did not come so far
  try {
    report::RunRecord record = report::read_run_json(path_);
    const bool says_it = record.outcome != "ok" && record.outcome != "unfinished";
    if (says_it && verdict.rank.value_or(0) == 0) return;
    record.outcome = verdict.out_of_memory                         ? "oom"
                     : verdict.exit_code == Interrupted::kExitCode ? "interrupted"
                                                                   : "error";
    record.reason = verdict.message;
    report::write_run_json(record, path_);
    report::write_report_html(record, path_.parent_path() / "report.html");
    report::LogFile log;
    log.open(path_.parent_path() / "log.txt", report::LogStart::Append);
    log.write_end(record.outcome, record.reason);
  } catch (const std::exception& failure) {
    warn("{} does not say how the run ended: {}", path_.string(), failure.what());
  }
}

namespace {

constexpr double kInterval = 0.2;
// Keepers touch their records every few seconds; a machine that does not for so long is gone.
constexpr double kLostMachine = 60;
// A keeper waits as long before it lets go of a rank that failed.
constexpr double kSettling = 0.4;

}  // namespace

double RunningTime::seconds() {
  const Clock::time_point now = Clock::now();
  total_ += std::min(kLongest, std::chrono::duration<double>(now - last_).count());
  last_ = now;
  return total_;
}

Watch::Watch(std::filesystem::path folder, std::string job, int size)
    : folder_(std::move(folder)),
      job_(std::move(job)),
      records_(static_cast<size_t>(size)),
      signs_(static_cast<size_t>(size)) {}

void Watch::look() {
  if (time_.seconds() >= next_look_) look_now();
}

void Watch::look_now() {
  const double now = time_.seconds();
  for (size_t rank = 0; rank < records_.size(); ++rank) read(static_cast<int>(rank), now);
  // Thousands of ranks must not keep a network's disk busy.
  next_look_ = now + kInterval + 0.002 * static_cast<double>(records_.size());
  if (failed_at_ < 0 && any_failed(records_)) failed_at_ = now;
}

void Watch::read(int rank, double now) {
  std::optional<RankRecord>& record = records_[static_cast<size_t>(rank)];
  if (record && record->ending != Ending::Running) return;
  const int64_t touched = touched_at(folder_, rank);
  if (touched == 0) return;
  Sign& sign = signs_[static_cast<size_t>(rank)];
  if (touched != sign.touched) {
    sign = {.touched = touched, .seen = now};
    if (auto read = read_record(folder_, rank, job_)) record = std::move(read);
  } else if (record && now - sign.seen > kLostMachine) {
    record->ending = Ending::Silent;
    record->text = fmt::format("has not responded for {:.0f} s", kLostMachine);
  }
}

bool Watch::is_settled() { return failed_at_ >= 0 && time_.seconds() - failed_at_ >= kSettling; }

}  // namespace snug::launch
