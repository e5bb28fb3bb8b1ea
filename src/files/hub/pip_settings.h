// This machine's package index from pip's settings, since users behind a mirror have configured pip
// already.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace snug::hub {

struct PipSettings {
  std::string index_url = "https://pypi.org/simple";  // without a slash at the end, or a login
  std::string login;                                  // NAME:PASSWORD; empty: none
  std::string certificates;                           // a PEM file; empty: the system's
};

// PIP_INDEX_URL and PIP_CERT of the environment, else pip's configuration files, in pip's order.
// Throws UserError for an index that is not an http(s) address.
PipSettings pip_settings();

}  // namespace snug::hub
