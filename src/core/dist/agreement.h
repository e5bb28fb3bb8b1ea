// Runs work that may fail on any rank and shares the outcome, so that no rank waits for one that
// has failed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/dist/group.h"

namespace snug::dist {

// Runs `work` on every rank and returns all results, by rank. If it failed on one, all throw an
// error of the same kind that names the rank. All ranks of the group must call it; communication
// errors are thrown unchanged. Without a group it runs only in this process.
std::vector<std::string> agree(Group* group, const std::function<std::string()>& work);

// Checks that all processes of a run have the same settings.

// `text`: the settings that must be equal on all ranks, one line "name = value" each. If they
// differ, all ranks throw a UserError with the ranks and settings that differ from rank 0.
void check_agreement(Group& world, const std::string& text);

// Describes the differences between such texts, by rank; empty if there are none.
std::string disagreement(const std::vector<std::string>& texts);

}  // namespace snug::dist
