// A record of a folder's earlier downloads, so that a second run neither downloads nor hashes
// again, and works offline. Files changed since then do not count.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "files/hub/download.h"

namespace snug::hub {

inline constexpr const char* kManifestName = ".snug-download.json";

class Manifest {
 public:
  // A missing or damaged manifest counts as empty: files are then checked by their hashes.
  explicit Manifest(const std::filesystem::path& directory);

  bool holds(const std::string& path, const std::string& version) const;
  void record(const std::string& path, const std::string& version);
  // Records a complete download: `paths` are all files for these options.
  void complete(const DownloadOptions& options, const std::vector<std::string>& paths);
  void save() const;

  // The files of a complete download with the same options, if they are all still there unchanged.
  std::optional<std::vector<std::string>> earlier_download(const DownloadOptions& options) const;

 private:
  struct Entry {
    std::string version;  // hash, or commit where the hub gives no hash
    int64_t size = 0;
    int64_t modified = 0;  // file system clock ticks
  };
  std::optional<Entry> on_disk(const std::string& path) const;
  bool unchanged(const std::string& path, const Entry& entry) const;

  std::filesystem::path directory_;
  std::map<std::string, Entry> entries_;
  std::string request_;  // what the last complete download was asked for
  std::vector<std::string> paths_;
};

}  // namespace snug::hub
