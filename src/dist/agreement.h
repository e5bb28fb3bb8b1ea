// Work that each rank does by itself and that may fail on any of them: afterwards all know how it
// went, so that none waits for one that has given up.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dist/group.h"

namespace snug::dist {

// Runs `work` and returns what every rank's gave back, by rank. Where it failed on one, all throw
// an error of that kind which names the rank. To be called by all of the group; a failure of the
// communication itself is thrown as it is. Without a group: this process alone.
std::vector<std::string> agree(Group* group, const std::function<std::string()>& work);

}  // namespace snug::dist
