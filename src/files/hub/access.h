// The hub's endpoint and access token, from the options or else from the environment variables of
// the hub's own tools.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "files/hub/download.h"
#include "files/hub/http.h"

namespace snug::hub {

struct Access {
  std::string endpoint;  // without a slash at the end
  std::string login;     // NAME:PASSWORD of the endpoint's address; may be empty
  std::string token;     // may be empty
};

// Throws UserError for an endpoint that is not an http(s) address or a token that is invalid in a
// header.
Access resolve_access(const DownloadOptions& options);

// The repository's name for messages: "ORG/NAME", "dataset ORG/NAME".
std::string repository_name(const DownloadOptions& options);

// Throws UserError with the meaning of an unsuccessful response and what to do.
[[noreturn]] void fail_for(const Response& response, const DownloadOptions& options,
                           const Access& access, const std::string& what);

}  // namespace snug::hub
