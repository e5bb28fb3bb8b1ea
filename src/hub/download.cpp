// SPDX-License-Identifier: Apache-2.0
#include "hub/download.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>

#include "base/bytes.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "hub/access.h"
#include "hub/manifest.h"
#include "hub/part_file.h"
#include "hub/repository.h"
#include "hub/selection.h"
#include "hub/transfer.h"

namespace snug::hub {
namespace {

constexpr size_t kMaxListingBytes = size_t{64} << 20;
constexpr int64_t kSaveManifestFrom = 64 * kMiB;  // smaller files are quickly hashed again
constexpr double kReportSeconds = 0.1;
constexpr double kRateSeconds = 5;  // the rate is a mean over about so long

double now_seconds() {
  using std::chrono::steady_clock;
  return std::chrono::duration<double>(steady_clock::now().time_since_epoch()).count();
}

// Passes on what a person wants to see, ten times a second at most.
class Meter {
 public:
  Meter(const std::function<void(const Progress&)>& report, int64_t all_total) : report_(report) {
    now_.all_total = all_total;
  }

  void begin(const RemoteFile& file) {
    done_ += now_.file_bytes;
    now_.file = file.path;
    now_.file_bytes = 0;
    now_.file_total = std::max<int64_t>(file.size, 0);
  }
  // `received` counts for the rate; what lay on disk before does not.
  void at(int64_t file_bytes, int64_t received) {
    now_.file_bytes = file_bytes;
    now_.all_bytes = done_ + file_bytes;
    unrated_ += received;
    const double now = now_seconds();
    if (now - last_report_ < kReportSeconds) return;
    rate(now);
    send();
  }
  void end() {
    now_.all_bytes = done_ + now_.file_bytes;
    now_.all_total = std::max(now_.all_total, now_.all_bytes);
    send();
  }

 private:
  void rate(double now) {
    const double elapsed = now - rated_at_;
    if (elapsed < kReportSeconds) return;
    const double share =
        elapsed > kRateSeconds || now_.bytes_per_second == 0 ? 1 : elapsed / kRateSeconds;
    now_.bytes_per_second +=
        share * (static_cast<double>(unrated_) / elapsed - now_.bytes_per_second);
    unrated_ = 0;
    rated_at_ = now;
  }
  void send() {
    last_report_ = now_seconds();
    if (report_) report_(now_);
  }

  const std::function<void(const Progress&)>& report_;
  Progress now_;
  int64_t done_ = 0;
  int64_t unrated_ = 0;
  double rated_at_ = now_seconds();
  double last_report_ = -1e9;
};

class Session {
 public:
  Session(const DownloadOptions& options, Access access)
      : options_(options), access_(std::move(access)), manifest_(options.directory) {}

  std::vector<std::filesystem::path> run(const std::function<void(const Progress&)>& progress);

 private:
  Response ask_for_listing(std::string& body);
  void fetch_all(const std::vector<RemoteFile>& files, Meter& meter);
  void fetch(const RemoteFile& file, Meter& meter);
  void receive(const RemoteFile& file, PartFile& part, Meter& meter);
  bool have(const RemoteFile& file);
  void check_space(const std::vector<RemoteFile>& missing) const;

  std::string version_of(const RemoteFile& file) const {
    return file.identity().empty() ? "commit " + commit_ : file.identity();
  }
  std::filesystem::path part_path(const RemoteFile& file) const {
    const std::string& version = file.identity().empty() ? commit_ : file.identity();
    return options_.directory / (file.path + "." + version.substr(0, 12) + ".part");
  }
  Request request_for(const std::string& path) const {
    Request request;
    request.url = access_.endpoint + path;
    request.token = access_.token;
    request.stall_seconds = options_.stall_seconds;
    return request;
  }
  std::vector<std::filesystem::path> full_paths(const std::vector<std::string>& paths) const {
    std::vector<std::filesystem::path> out;
    for (const std::string& path : paths) out.push_back(options_.directory / path);
    return out;
  }
  Patience patience() const { return {options_.max_retries, options_.backoff_seconds}; }

  const DownloadOptions& options_;
  Access access_;
  Manifest manifest_;
  Http http_;
  std::string commit_;
};

Response Session::ask_for_listing(std::string& body) {
  Request request = request_for(listing_path(options_));
  request.on_start = [&](const Response&) { body.clear(); };
  request.on_data = [&](std::string_view bytes) {
    if (body.size() + bytes.size() > kMaxListingBytes)
      throw UserError("{}: the listing of {} does not end", access_.endpoint,
                      repository_name(options_));
    body += bytes;
  };
  return with_patience(
      patience(), [&] { return http_.get(request); }, [] { return int64_t{0}; });
}

std::vector<std::filesystem::path> Session::run(
    const std::function<void(const Progress&)>& progress) {
  const std::string what = "cannot download " + repository_name(options_);
  std::string body;
  const Response response = ask_for_listing(body);
  if (response.failure == Failure::Unreachable) {
    if (const auto paths = manifest_.earlier_download(options_)) {
      warn("{} cannot be reached ({}); going on with what was downloaded before to {}",
           access_.endpoint, response.failure_text, options_.directory.string());
      return full_paths(*paths);
    }
  }
  if (!response.ok()) fail_for(response, options_, access_, what);
  const Listing listing = parse_listing(body, response.url);
  commit_ = listing.commit;
  const std::vector<RemoteFile> files = select_files(listing, options_);
  std::vector<std::string> paths;
  int64_t total = 0;
  for (const RemoteFile& file : files) {
    check_file_name(file.path, repository_name(options_));
    paths.push_back(file.path);
    total += std::min(std::max<int64_t>(file.size, 0), INT64_MAX / 2 - total);
  }
  Meter meter(progress, total);
  fetch_all(files, meter);
  manifest_.complete(options_, paths);
  manifest_.save();
  return full_paths(paths);
}

void Session::fetch_all(const std::vector<RemoteFile>& files, Meter& meter) {
  std::vector<RemoteFile> missing;
  for (const RemoteFile& file : files) {
    if (have(file)) {
      meter.begin(file);
      meter.at(std::max<int64_t>(file.size, 0), 0);
    } else {
      missing.push_back(file);
    }
  }
  check_space(missing);
  try {
    for (const RemoteFile& file : missing) {
      fetch(file, meter);
      manifest_.record(file.path, version_of(file));
      if (file.size >= kSaveManifestFrom) manifest_.save();
    }
  } catch (...) {
    manifest_.save();
    throw;
  }
  meter.end();
}

// Known from the manifest, or put there by other means and found to be right.
bool Session::have(const RemoteFile& file) {
  if (manifest_.holds(file.path, version_of(file))) return true;
  if (!has_content_of(options_.directory / file.path, file)) return false;
  manifest_.record(file.path, version_of(file));
  return true;
}

void Session::check_space(const std::vector<RemoteFile>& missing) const {
  std::error_code error;
  const auto space = std::filesystem::space(options_.directory, error);
  if (error) return;
  double needed = 0;
  for (const RemoteFile& file : missing) {
    const auto there = std::filesystem::file_size(part_path(file), error);
    const double rest = static_cast<double>(file.size) - (error ? 0.0 : static_cast<double>(there));
    needed += std::max(rest, 0.0);
  }
  if (needed > static_cast<double>(space.available))
    throw UserError(
        "{} needs {} more in {}, where {} are free; make room or choose another folder",
        repository_name(options_), format_bytes(static_cast<int64_t>(std::min(needed, 9e18))),
        options_.directory.string(), format_bytes(static_cast<int64_t>(space.available)));
}

// A part of another version of this file will never be gone on with.
void remove_stale_parts(const std::filesystem::path& part) {
  const std::string name = part.filename().string();
  const std::string stem = name.substr(0, name.size() - std::strlen("123456789012.part"));
  std::error_code error;
  for (std::filesystem::directory_iterator it(part.parent_path(), error), end; !error && it != end;
       it.increment(error)) {
    const std::string other = it->path().filename().string();
    std::error_code ignored;
    if (other != name && other.size() == name.size() && other.starts_with(stem) &&
        other.ends_with(".part"))
      std::filesystem::remove(it->path(), ignored);
  }
}

void Session::fetch(const RemoteFile& file, Meter& meter) {
  const std::filesystem::path path = options_.directory / file.path;
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) throw UserError("cannot make {}: {}", path.parent_path().string(), error.message());
  PartFile part(part_path(file), file);
  remove_stale_parts(part_path(file));
  meter.begin(file);
  const bool resumed = part.size() > 0;
  std::string found;
  receive(file, part, meter);
  bool right = part.verify(found);
  if (!right && resumed) {
    // After a power cut the tail of a part file may be other bytes than were written: once more
    // from zero.
    detail("{}: {}; fetching it anew", file.path, found);
    part.restart();
    receive(file, part, meter);
    right = part.verify(found);
  }
  if (!right) {
    part.discard();
    throw UserError(
        "{}: what arrived has {}; the copy at {}, or a proxy on the way, is damaged. Run the "
        "command again, or use another HF_ENDPOINT",
        file.path, found, access_.endpoint);
  }
  part.finish(path);
}

void Session::receive(const RemoteFile& file, PartFile& part, Meter& meter) {
  int64_t counted = part.size();
  const auto on_bytes = [&] {
    meter.at(part.size(), std::max<int64_t>(part.size() - counted, 0));
    counted = part.size();
  };
  if (file.size < 0 || part.size() < file.size) {
    const Request request = request_for(file_path(options_, commit_, file.path));
    const Response response = with_patience(
        patience(), [&] { return fetch_rest(http_, request, file, part, on_bytes); },
        [&] { return part.size(); });
    if (!response.ok()) fail_for(response, options_, access_, "cannot download " + file.path);
  }
  on_bytes();
}

}  // namespace

std::vector<std::filesystem::path> download(const DownloadOptions& options,
                                            const std::function<void(const Progress&)>& progress) {
  Access access = resolve_access(options);
  std::error_code error;
  std::filesystem::create_directories(options.directory, error);
  if (error) throw UserError("cannot make {}: {}", options.directory.string(), error.message());
  return Session(options, std::move(access)).run(progress);
}

}  // namespace snug::hub
