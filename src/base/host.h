// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace snug {

// This machine's name among others; "?" where the kernel does not say.
std::string host_name();

}  // namespace snug
