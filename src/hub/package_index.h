// A file of a package on a Python package index (PyPI, or a mirror of it), by the "simple" API:
// PEP 691 (JSON) and PEP 503 (HTML).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "hub/meter.h"
#include "hub/pip_settings.h"

namespace snug::hub {

struct IndexFile {
  std::string name;
  std::string url;     // absolute
  std::string sha256;  // empty: the index does not say
};

// Reads the index's page on one project; `url` is where it came from. What is no link to a file is
// passed over.
std::vector<IndexFile> read_index_page(std::string_view page, const std::string& content_type,
                                       const std::string& url);

// The index does not have the file, has another one, or does not answer: another source may.
class NotFromIndex : public UserError {
  using UserError::UserError;
};

struct PackageFile {
  std::string project;  // its normalised name
  std::string name;
  std::string sha256;  // what is fetched must have it
  int64_t size = 0;
};

struct PackageRequest {
  PackageFile file;
  std::filesystem::path directory;  // made when missing
  PipSettings settings;
  double stall_seconds = 30;
  int max_retries = 5;
  double backoff_seconds = 1;
};

// Fetches the file, or goes on with what an earlier run left of it; nothing where it is there
// already. Throws NotFromIndex, and UserError for what is wrong on this machine (disk full, another
// process at it).
std::filesystem::path download_package_file(const PackageRequest& wanted,
                                            const ShowProgress& progress);

}  // namespace snug::hub
