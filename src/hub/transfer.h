// One file from the hub into its part file, and the patience that networks need.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/error.h"
#include "hub/http.h"
#include "hub/meter.h"
#include "hub/part_file.h"

namespace snug::hub {

struct Patience {
  int max_retries = 5;         // in a row that gain nothing
  double backoff_seconds = 1;  // before the first; doubles up to a minute
};

// Repeats `attempt` while its failure may pass (lost or stalled connection, 408, 429, 5xx) and
// returns the last response. Retry-After is honoured up to two minutes. `gained` tells how far the
// attempts have come together: progress makes patience new.
Response with_patience(const Patience& patience, const std::function<Response()>& attempt,
                       const std::function<int64_t()>& gained);

// A whole text of at most 64 MiB, with patience. `body` is meant where the response is ok().
Response get_text(Http& http, Request request, const Patience& patience, std::string& body);

// One attempt at the rest of `file`: asks for what is missing, and starts over where the server
// does not do ranges. `on_bytes` follows part.size(). Throws UserError for a wrong size and a full
// disk.
Response fetch_rest(Http& http, Request request, const RemoteFile& file, PartFile& part,
                    const std::function<void()>& on_bytes);

struct FileWish {
  RemoteFile file;
  Request request;
  std::filesystem::path part;  // in an existing folder, of one version of the file alone
  std::filesystem::path path;
  Patience patience;
  // Says what an answer other than success means, by an exception.
  std::function<void(const Response&)> fail;
  std::string source;   // where it is fetched from, for errors
  std::string setting;  // the variable that names another source
};

// The whole file into `part`, which an earlier run may have begun; once its size and hash are right
// it gets its final name. Throws UserError; DamagedCopy where the source has other bytes.
void fetch_file(Http& http, const FileWish& wish, Meter& meter);

class DamagedCopy : public UserError {
  using UserError::UserError;
};

// Throws UserError where `needed` bytes do not fit into the folder.
void check_room(const std::filesystem::path& folder, double needed, const std::string& what);

// With its parents; throws UserError.
void make_folder(const std::filesystem::path& folder);

}  // namespace snug::hub
