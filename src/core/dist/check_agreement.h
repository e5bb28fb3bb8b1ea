// Checks that all processes of a run have the same settings.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/dist/group.h"

namespace snug::dist {

// `text`: the settings that must be equal on all ranks, one line "name = value" each. If they
// differ, all ranks throw a UserError with the ranks and settings that differ from rank 0.
void check_agreement(Group& world, const std::string& text);

// Describes the differences between such texts, by rank; empty if there are none.
std::string disagreement(const std::vector<std::string>& texts);

}  // namespace snug::dist
