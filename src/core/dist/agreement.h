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

}  // namespace snug::dist
