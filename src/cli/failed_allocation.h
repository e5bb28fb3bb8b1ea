// The size of a failed allocation of the program's own data, which std::bad_alloc does not tell.
// (The allocators of tensors report theirs themselves.)
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace snug {

// The message for a std::bad_alloc that reaches main.
std::string failed_allocation_text();

}  // namespace snug
