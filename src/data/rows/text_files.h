// Documents to be read as they stand: .txt and .md files, and rows with a column "text" of the
// files that read_rows() takes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "data/rows/rows.h"

namespace snug::data {

// One file, or all such files in a folder and the folders in it, by name; hidden ones are not read,
// others neither. A .txt or .md file is one document. Throws UserError where there is none, for
// text that is not UTF-8, and for rows of questions and answers or of chats.
std::vector<Row> read_text_files(const std::filesystem::path& path, const Columns& columns = {});

}  // namespace snug::data
