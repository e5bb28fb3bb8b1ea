// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace snug {

// This machine's host name; "?" if unknown.
std::string host_name();

}  // namespace snug
