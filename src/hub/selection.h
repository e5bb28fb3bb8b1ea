// Which files of a repository are wanted.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hub/repository.h"

namespace snug::hub {

// Shell globs; '*' also matches '/', as in the hub's own tools.
bool matches(const std::string& pattern, const std::string& path);

// With `patterns` the files that match one of them. Without: for a model its weights once
// (safetensors where there are any, else .bin) with configuration and tokenizer, of the top folder
// only; for a data set everything. Throws UserError when nothing is left, naming what there is.
std::vector<RemoteFile> select_files(const Listing& listing, const DownloadOptions& options);

}  // namespace snug::hub
