// That all processes of a run mean the same run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "dist/group.h"

namespace snug::dist {

// `text` is what must be the same on all ranks, a line "name = value" each. Where it is not, all
// ranks throw a UserError that names the ranks that differ from rank 0, and in what.
void check_agreement(Group& world, const std::string& text);

// What is wrong with such texts, by rank; empty where nothing is.
std::string disagreement(const std::vector<std::string>& texts);

}  // namespace snug::dist
