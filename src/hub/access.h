// Where the hub is and who asks: what the options leave open comes from the environment, under the
// names that the hub's own tools use.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "hub/download.h"
#include "hub/http.h"

namespace snug::hub {

struct Access {
  std::string endpoint;  // without a slash at the end
  std::string token;     // may be empty
};

// Throws UserError for an endpoint that is no http(s) address or a token that no header can hold.
Access resolve_access(const DownloadOptions& options);

// The repository as a person would name it: "ORG/NAME", "dataset ORG/NAME".
std::string repository_name(const DownloadOptions& options);

// Says what an answer other than success means for the person who asked, and how to mend it.
[[noreturn]] void fail_for(const Response& response, const DownloadOptions& options,
                           const Access& access, const std::string& what);

}  // namespace snug::hub
