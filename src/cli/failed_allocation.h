// How much memory the program's own data could not get: std::bad_alloc does not say. Tensors are
// not meant, whose allocators say it themselves.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace snug {

// For the message of a std::bad_alloc that nobody caught.
std::string failed_allocation_text();

}  // namespace snug
