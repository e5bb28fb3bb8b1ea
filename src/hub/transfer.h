// One file from the hub into its part file, and the patience that networks need.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "hub/http.h"
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

// One attempt at the rest of `file`: asks for what is missing, and starts over where the server
// does not do ranges. `on_bytes` follows part.size(). Throws UserError for a wrong size and a full
// disk.
Response fetch_rest(Http& http, Request request, const RemoteFile& file, PartFile& part,
                    const std::function<void()>& on_bytes);

}  // namespace snug::hub
