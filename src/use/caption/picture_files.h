// The pictures that words on a command line mean.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace snug::use {

// Files as they are given, whatever their names; of folders all files below whose names end as
// pictures' do; of patterns (*, ?, […]) what they match; each once, folders and patterns in
// alphabetical order. Throws UserError for a word that means nothing.
std::vector<std::filesystem::path> find_pictures(const std::vector<std::string>& words);

}  // namespace snug::use
