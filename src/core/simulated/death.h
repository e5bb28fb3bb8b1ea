// A process that is killed at a place of its device's work, as if its machine went away:
// SNUG_SIMULATED_DEATH=RANK:KIND:N kills rank RANK (of mpirun's) by SIGKILL when it comes to its
// Nth launch, copy or collective.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace snug::simulated {

// An operator of libtorch's is a launch.
enum class Kind : uint8_t { Launch, Copy, Collective };

// The device's thread begins a work of that kind. Throws c10::Error for a variable that says
// nothing.
void come_to(Kind kind);

// How many works of each kind there were, for SNUG_SIMULATED_COUNTS: lines "works/copy N 0 0".
void append_works(const char* file);

}  // namespace snug::simulated
