// snug download: the files of a repository on a Hugging Face hub (or a mirror that behaves as one).
// A file under its final name is complete and verified: bytes are written to NAME.part, which a
// later run continues if the server still has the same version, and renamed once size and hash
// match.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "files/hub/meter.h"

namespace snug::hub {

struct DownloadOptions {
  std::string repo_id;              // ORG/NAME
  std::string repo_type = "model";  // or "dataset"
  std::string revision = "main";    // branch, tag or commit
  std::filesystem::path directory;  // where the files go; made when missing
  std::string endpoint;             // empty: HF_ENDPOINT, else https://huggingface.co
  std::string token;  // empty: HF_TOKEN, HUGGING_FACE_HUB_TOKEN, the token file of the hub's CLI
  std::vector<std::string>
      patterns;               // globs on the path in the repository; empty: default_patterns()
  double stall_seconds = 30;  // a connection that brings nothing for so long is dropped and retried
  int max_retries = 5;        // in a row without a byte gained
  double backoff_seconds = 1;  // before the first retry; doubles up to a minute
};

// Downloads missing files and returns the paths of all selected files, sorted by name. A second run
// downloads nothing. Throws UserError (no such repository, gated, no network, disk full, wrong
// hash). `progress` may be empty; it is called from this thread.
std::vector<std::filesystem::path> download(const DownloadOptions& options,
                                            const ShowProgress& progress);

// Whether an earlier download with these options ended, and its files are as it left them. Asks
// nobody.
bool is_downloaded(const DownloadOptions& options);
// The files that the last download into this folder to end was asked for, of whatever revision;
// none if one is not as it left it. Asks nobody.
std::vector<std::filesystem::path> downloaded_files(const std::filesystem::path& directory);

}  // namespace snug::hub
