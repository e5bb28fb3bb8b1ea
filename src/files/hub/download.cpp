// SPDX-License-Identifier: Apache-2.0
#include "files/hub/download.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/bytes.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "files/hub/access.h"
#include "files/hub/part_file.h"
#include "files/hub/repository.h"
#include "files/hub/transfer.h"

namespace snug::hub {
namespace {

constexpr int64_t kSaveManifestFrom = 64 * kMiB;  // smaller files are quickly hashed again

class Session {
 public:
  Session(const DownloadOptions& options, Access access)
      : options_(options), access_(std::move(access)), manifest_(options.directory) {}

  std::vector<std::filesystem::path> run(const ShowProgress& progress);

 private:
  void fetch_all(const std::vector<RemoteFile>& files, Meter& meter);
  void fetch(const RemoteFile& file, Meter& meter);
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
    request.login = access_.login;
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

bool holds_nothing(const std::filesystem::path& folder) {
  std::error_code error;
  return std::filesystem::is_empty(folder, error) && !error;
}

// And the one of its organization, if that holds nothing else.
void remove_empty(const std::filesystem::path& folder) {
  std::error_code ignored;
  std::filesystem::remove(folder, ignored);
  std::filesystem::remove(folder.parent_path(), ignored);
}

std::vector<std::filesystem::path> Session::run(const ShowProgress& progress) {
  const std::string what = "cannot download " + repository_name(options_);
  std::string body;
  const Response response = get_text(http_, request_for(listing_path(options_)), patience(), body);
  if (response.failure == Failure::Unreachable) {
    if (const auto paths = manifest_.earlier_download(options_)) {
      warn("{} cannot be reached ({}); using the earlier download in {}", access_.endpoint,
           response.failure_text, options_.directory.string());
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
      meter.begin(file.path, file.size);
      meter.at(std::max<int64_t>(file.size, 0), 0);
    } else {
      missing.push_back(file);
    }
  }
  make_folder(options_.directory);
  try {
    check_space(missing);
    for (const RemoteFile& file : missing) {
      fetch(file, meter);
      manifest_.record(file.path, version_of(file));
      if (file.size >= kSaveManifestFrom) manifest_.save();
    }
  } catch (...) {
    if (holds_nothing(options_.directory))
      remove_empty(options_.directory);
    else
      manifest_.save();
    throw;
  }
  meter.end();
}

// Whether the file is complete: known from the manifest, or verified by its hash.
bool Session::have(const RemoteFile& file) {
  if (manifest_.holds(file.path, version_of(file))) return true;
  if (!has_content_of(options_.directory / file.path, file)) return false;
  manifest_.record(file.path, version_of(file));
  return true;
}

void Session::check_space(const std::vector<RemoteFile>& missing) const {
  double needed = 0;
  for (const RemoteFile& file : missing) {
    std::error_code error;
    const auto there = std::filesystem::file_size(part_path(file), error);
    const double rest = static_cast<double>(file.size) - (error ? 0.0 : static_cast<double>(there));
    needed += std::max(rest, 0.0);
  }
  check_room(options_.directory, needed, repository_name(options_));
}

// Removes partial files of other versions, which will never be continued.
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
  const auto fail = [&](const Response& response) {
    fail_for(response, options_, access_, "cannot download " + file.path);
  };
  make_folder(part_path(file).parent_path());
  remove_stale_parts(part_path(file));
  fetch_file(http_,
             {.file = file,
              .request = request_for(file_path(options_, commit_, file.path)),
              .part = part_path(file),
              .path = options_.directory / file.path,
              .patience = patience(),
              .fail = fail,
              .source = access_.endpoint,
              .setting = "HF_ENDPOINT"},
             meter);
}

}  // namespace

std::vector<std::filesystem::path> download(const DownloadOptions& options,
                                            const ShowProgress& progress) {
  Access access = resolve_access(options);
  return Session(options, std::move(access)).run(progress);
}

bool is_downloaded(const DownloadOptions& options) {
  return Manifest(options.directory).earlier_download(options).has_value();
}

std::vector<std::filesystem::path> downloaded_files(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  for (const std::string& path : Manifest(directory).last_download())
    files.push_back(directory / path);
  return files;
}

}  // namespace snug::hub
