// SPDX-License-Identifier: Apache-2.0
#include "files/hub/manifest.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"

namespace snug::hub {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxManifestBytes = size_t{64} << 20;

std::string request_of(const DownloadOptions& options) {
  const Json request = {options.repo_type, options.repo_id, options.revision, options.patterns};
  return request.dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace

Manifest::Manifest(const std::filesystem::path& directory) : directory_(directory) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(directory / kManifestName, ignored)) return;
  try {
    const Json json = Json::parse(read_file(directory / kManifestName, kMaxManifestBytes));
    std::map<std::string, Entry> entries;
    for (const auto& [path, entry] : json.at("files").items())
      entries[path] = {entry.at("version"), entry.at("size"), entry.at("modified")};
    auto paths = json.at("paths").get<std::vector<std::string>>();
    request_ = json.at("request");
    entries_ = std::move(entries);
    paths_ = std::move(paths);
  } catch (const Json::exception&) {
  } catch (const UserError&) {
  }
}

std::optional<Manifest::Entry> Manifest::on_disk(const std::string& path) const {
  std::error_code error;
  const std::filesystem::path file = directory_ / path;
  if (!std::filesystem::is_regular_file(file, error)) return std::nullopt;
  const auto size = std::filesystem::file_size(file, error);
  if (error) return std::nullopt;
  const auto time = std::filesystem::last_write_time(file, error);
  if (error) return std::nullopt;
  return Entry{"", static_cast<int64_t>(size), time.time_since_epoch().count()};
}

bool Manifest::unchanged(const std::string& path, const Entry& entry) const {
  const auto now = on_disk(path);
  return now && now->size == entry.size && now->modified == entry.modified;
}

bool Manifest::holds(const std::string& path, const std::string& version) const {
  const auto it = entries_.find(path);
  return it != entries_.end() && it->second.version == version && unchanged(path, it->second);
}

void Manifest::record(const std::string& path, const std::string& version) {
  auto entry = on_disk(path);
  SNUG_CHECK(entry.has_value(), "{} vanished", path);
  entry->version = version;
  entries_[path] = *entry;
}

void Manifest::complete(const DownloadOptions& options, const std::vector<std::string>& paths) {
  request_ = request_of(options);
  paths_ = paths;
}

void Manifest::save() const {
  Json files = Json::object();
  for (const auto& [path, entry] : entries_)
    files[path] = {{"version", entry.version}, {"size", entry.size}, {"modified", entry.modified}};
  const Json json = {{"request", request_}, {"paths", paths_}, {"files", files}};
  write_file_atomically(directory_ / kManifestName, json.dump(1) + "\n");
}

std::optional<std::vector<std::string>> Manifest::earlier_download(
    const DownloadOptions& options) const {
  if (paths_.empty() || request_ != request_of(options)) return std::nullopt;
  for (const std::string& path : paths_) {
    const auto it = entries_.find(path);
    if (it == entries_.end() || !unchanged(path, it->second)) return std::nullopt;
  }
  return paths_;
}

}  // namespace snug::hub
