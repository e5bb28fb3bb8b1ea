// Downloads one file from the hub to its part file, with retries.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/error.h"
#include "files/hub/http.h"
#include "files/hub/meter.h"
#include "files/hub/part_file.h"

namespace snug::hub {

struct Patience {
  int max_retries = 5;         // in a row that gain nothing
  double backoff_seconds = 1;  // before the first; doubles up to a minute
};

// Repeats `attempt` on temporary failures (lost or stalled connection, 408, 429, 5xx) and returns
// the last response. Retry-After is honoured up to two minutes. `gained` returns the total progress
// of all attempts; progress resets the number of retries.
Response with_patience(const Patience& patience, const std::function<Response()>& attempt,
                       const std::function<int64_t()>& gained);

// Downloads a text of at most 64 MiB, with retries. `body` is valid if the response is ok().
Response get_text(Http& http, Request request, const Patience& patience, std::string& body);

// One attempt to download the rest of `file`; starts over if the server does not support ranges.
// `on_bytes` follows part.size(). Throws UserError for a wrong size and a full disk.
Response fetch_rest(Http& http, Request request, const RemoteFile& file, PartFile& part,
                    const std::function<void()>& on_bytes);

struct FileWish {
  RemoteFile file;
  Request request;
  std::filesystem::path part;  // in an existing folder, of one version of the file alone
  std::filesystem::path path;
  Patience patience;
  // Throws an error for an unsuccessful response.
  std::function<void(const Response&)> fail;
  std::string source;   // where it is fetched from, for errors
  std::string setting;  // the variable that names another source
};

// Downloads the whole file to `part`, continuing an earlier run, and renames it once size and hash
// are correct. Throws UserError, or DamagedCopy if the source's bytes are wrong.
void fetch_file(Http& http, const FileWish& wish, Meter& meter);

class DamagedCopy : public UserError {
  using UserError::UserError;
};

// Throws UserError if the folder's disk lacks `needed` bytes.
void check_room(const std::filesystem::path& folder, double needed, const std::string& what);

// Makes the folder with its parents; throws UserError.
void make_folder(const std::filesystem::path& folder);

}  // namespace snug::hub
