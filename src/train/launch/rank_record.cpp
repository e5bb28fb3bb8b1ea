// SPDX-License-Identifier: Apache-2.0
#include "train/launch/rank_record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/files.h"

namespace snug::launch {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr const char* kJobFile = "job.json";

constexpr std::array<std::pair<Ending, const char*>, 11> kNames = {{
    {Ending::Running, "running"},
    {Ending::Done, "done"},
    {Ending::UserError, "user error"},
    {Ending::OutOfMemory, "out of memory"},
    {Ending::Interrupted, "interrupted"},
    {Ending::Communication, "communication"},
    {Ending::InternalError, "internal error"},
    {Ending::Exited, "exited"},
    {Ending::Killed, "killed"},
    {Ending::Silent, "silent"},
    {Ending::Stopped, "stopped"},
}};

const char* name(Ending ending) {
  for (const auto& [value, text] : kNames)
    if (value == ending) return text;
  return "?";
}

Ending ending_of(const std::string& text) {
  for (const auto& [value, known] : kNames)
    if (known == text) return value;
  return Ending::InternalError;
}

fs::path record_file(const fs::path& folder, int rank) {
  return folder / fmt::format("rank-{}.json", rank);
}

// Not synced to disk: it is for those who watch the run, not for after a power cut.
bool write_json(const OrderedJson& json, const fs::path& path) {
  const fs::path temporary = fmt::format("{}.tmp-{}", path.string(), ::getpid());
  std::error_code error;
  std::ofstream out(temporary, std::ios::trunc);
  out << json.dump(1, ' ', false, OrderedJson::error_handler_t::replace) << "\n";
  out.close();
  if (out) fs::rename(temporary, path, error);
  if (out && !error) return true;
  fs::remove(temporary, error);
  return false;
}

}  // namespace

fs::path logs_folder(const std::string& out_dir) { return fs::path(out_dir) / "logs"; }

fs::path log_file(const fs::path& folder, int rank) {
  return folder / fmt::format("rank-{}.log", rank);
}

bool write_record(const fs::path& folder, const RankRecord& record) {
  return write_json({{"job", record.job},
                     {"rank", record.rank},
                     {"host", record.host},
                     {"process", record.process},
                     {"keeper", record.keeper},
                     {"ending", name(record.ending)},
                     {"exit_code", record.exit_code},
                     {"signal", record.signal},
                     {"machine_out_of_memory", record.machine_out_of_memory},
                     {"text", record.text},
                     {"activity", record.activity}},
                    record_file(folder, record.rank));
}

std::optional<RankRecord> read_record(const fs::path& folder, int rank, const std::string& job) {
  const fs::path path = record_file(folder, rank);
  if (::access(path.c_str(), R_OK) != 0) return std::nullopt;
  try {
    const OrderedJson json = OrderedJson::parse(read_file(path, size_t{1} << 24));
    if (json.at("job") != job) return std::nullopt;
    return RankRecord{.job = job,
                      .rank = json.at("rank"),
                      .host = json.at("host"),
                      .process = json.at("process"),
                      .keeper = json.at("keeper"),
                      .ending = ending_of(json.at("ending")),
                      .exit_code = json.at("exit_code"),
                      .signal = json.at("signal"),
                      .machine_out_of_memory = json.at("machine_out_of_memory"),
                      .text = json.at("text"),
                      .activity = json.at("activity")};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void touch_record(const fs::path& folder, int rank) {
  ::utimensat(AT_FDCWD, record_file(folder, rank).c_str(), nullptr, 0);
}

int64_t touched_at(const fs::path& folder, int rank) {
  struct stat info {};
  if (::stat(record_file(folder, rank).c_str(), &info) != 0) return 0;
  return info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
}

bool write_job_end(const fs::path& folder, const std::string& job) {
  return write_json({{"job", job}, {"over", true}}, folder / kJobFile);
}

bool is_job_over(const fs::path& folder, const std::string& job) {
  const fs::path path = folder / kJobFile;
  if (::access(path.c_str(), R_OK) != 0) return false;
  try {
    return OrderedJson::parse(read_file(path, size_t{1} << 20)).at("job") == job;
  } catch (const std::exception&) {
    return false;
  }
}

void clear_folder(const fs::path& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string file = entry.path().filename();
    if (file.starts_with("rank-") || file == kJobFile) fs::remove(entry.path(), error);
  }
}

std::string signal_text(int signal_number) {
  const char* short_name = ::sigabbrev_np(signal_number);
  return short_name == nullptr ? fmt::format("signal {}", signal_number)
                               : fmt::format("SIG{} ({})", short_name, signal_number);
}

}  // namespace snug::launch
