// Captions that stand neither in lines of JSON nor in a table: a list in a .json file, COCO's
// annotations, and texts in files beside the pictures.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace snug::data {

// The rows of a .json file: of a list its objects, of COCO's {"images": [{"id", "file_name"}, …],
// "annotations": [{"image_id", "caption"}, …]} one {"file_name", "caption"} an annotation. `name`
// names the file in errors. Throws UserError.
std::vector<nlohmann::ordered_json> captions_in_json(std::string_view text,
                                                     const std::string& name);

// For each picture in the folder, in the order of their names, {"file_name", "text"}: the text of
// the .txt file beside it, null where there is none. Empty if no picture has one.
std::vector<nlohmann::ordered_json> captions_beside(const std::filesystem::path& folder);

}  // namespace snug::data
