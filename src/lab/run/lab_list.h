// snug lab list: the suites there are, or the rows of one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lab/suite/suite.h"

namespace snug::lab {

std::string list_suites_text(const std::vector<std::filesystem::path>& files, int width);
std::string list_suites_json(const std::vector<std::filesystem::path>& files);
std::string list_rows_text(const Suite& suite, int width);
std::string list_rows_json(const Suite& suite);

}  // namespace snug::lab
