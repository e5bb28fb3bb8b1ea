// Processes of one row, known by a word in their environment, which all that they start inherit:
// ranks and MPI's daemons leave process group and session, this they keep.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace snug::lab {

// "SNUG_LAB_ROW=1234-1", as it stands in an environment; another one each time.
std::string new_mark();
// Whether this variable of an environment is one, such as that of a lab within a lab.
bool is_mark(const char* variable);

// Not this one, and none that has ended and is not waited for yet.
std::vector<pid_t> processes_with(const std::string& mark);
// Returns when none is left.
void end_processes_with(const std::string& mark);

}  // namespace snug::lab
