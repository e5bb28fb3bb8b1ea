// A hub repository's contents: commit and files, with sizes and hashes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
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

}  // namespace snug::hub
