// A hub repository's contents: commit and files, with sizes and hashes; the files of it to
// download; and the record of earlier downloads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/hub/digest.h"
#include "files/hub/download.h"

namespace snug::hub {

struct RemoteFile {
  std::string path;     // in the repository, components parted by '/'
  int64_t size = -1;    // -1: the hub doesn't say
  std::string sha256;   // of the content, for LFS files
  std::string blob_id;  // git's SHA-1 of the content, for the others

  // Identifies this version of the file; empty if the hub gives no hash.
  const std::string& identity() const { return sha256.empty() ? blob_id : sha256; }
};

struct Listing {
  std::string commit;
  std::vector<RemoteFile> files;  // by name, no name twice
};

// Parses the response of /api/models/ORG/NAME/revision/REV?blobs=true. `where` names it in errors.
Listing parse_listing(std::string_view json, const std::string& where);

// Encoded paths below the endpoint. Throws UserError for a malformed repository id or type.
std::string listing_path(const DownloadOptions& options);
std::string file_path(const DownloadOptions& options, const std::string& commit,
                      const std::string& path);

// Throws UserError if a name from the server would be outside the folder or is not a valid file
// name.
void check_file_name(const std::string& path, const std::string& repository);

// A record of a folder's earlier downloads, so that a second run neither downloads nor hashes
// again, and works offline. Files changed since then do not count.
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
  // Those of the last complete download, whatever its options; empty if one is not there unchanged.
  std::vector<std::string> last_download() const;

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

// Shell globs; '*' also matches '/', as in the hub's own tools.
bool matches(const std::string& pattern, const std::string& path);

// With `patterns`: the files that match one of them. Without: for a model its weights in one format
// (safetensors if available, else .bin), configuration and tokenizer, from the top folder only; for
// a data set everything. Throws UserError with the files available if nothing matches.
std::vector<RemoteFile> select_files(const Listing& listing, const DownloadOptions& options);

}  // namespace snug::hub
