// A file of a package on a Python package index (PyPI, or the mirror in pip's settings), by the
// "simple" API: PEP 691 (JSON) and PEP 503 (HTML).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "files/hub/meter.h"

namespace snug::hub {

// This machine's package index from pip's settings, since users behind a mirror have configured pip
// already.
struct PipSettings {
  std::string index_url = "https://pypi.org/simple";  // without a slash at the end, or a login
  std::string login;                                  // NAME:PASSWORD; empty: none
  std::string certificates;                           // a PEM file; empty: the system's
};

// PIP_INDEX_URL and PIP_CERT of the environment, else pip's configuration files, in pip's order.
// Throws UserError for an index that is not an http(s) address.
PipSettings pip_settings();

struct IndexFile {
  std::string name;
  std::string url;     // absolute
  std::string sha256;  // empty: the index does not say
};

// Parses the index's page of a project; `url` is the page's address. Skips anything that is not a
// link to a file.
std::vector<IndexFile> read_index_page(std::string_view page, const std::string& content_type,
                                       const std::string& url);

// The index does not have the file, has a different one, or does not respond; another source may
// have it.
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

// Downloads the file, or continues an earlier run's download; does nothing if it exists. Throws
// NotFromIndex, or UserError for local problems (disk full, another process writing it).
std::filesystem::path download_package_file(const PackageRequest& wanted,
                                            const ShowProgress& progress);

}  // namespace snug::hub
