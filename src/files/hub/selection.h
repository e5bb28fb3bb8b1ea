// Selects the files of a repository to download.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "files/hub/repository.h"

namespace snug::hub {

// Shell globs; '*' also matches '/', as in the hub's own tools.
bool matches(const std::string& pattern, const std::string& path);

// With `patterns`: the files that match one of them. Without: for a model its weights in one format
// (safetensors if available, else .bin), configuration and tokenizer, from the top folder only; for
// a data set everything. Throws UserError with the files available if nothing matches.
std::vector<RemoteFile> select_files(const Listing& listing, const DownloadOptions& options);

}  // namespace snug::hub
