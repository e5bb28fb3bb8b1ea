// Which repository of a hub a folder stands for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace snug::hub {

// "ORG/NAME" of [FOLDER/]checkpoints/ORG/NAME, where `snug download ORG/NAME` puts a model, and of
// ORG/NAME itself where no folder ORG is; empty for any other path.
inline std::string hub_name(const std::filesystem::path& checkpoint) {
  const std::filesystem::path organization = checkpoint.parent_path();
  const std::string ending = checkpoint.extension().string();
  const bool is_file = ending == ".gguf" || ending == ".json" || ending == ".yaml";
  std::error_code error;
  if (organization.parent_path().filename() == "checkpoints")
    return (organization.filename() / checkpoint.filename()).string();
  const bool is_bare = !organization.empty() && !organization.has_parent_path() &&
                       organization.native().front() != '.' && organization != "checkpoints" &&
                       organization != "out";
  return is_bare && !is_file && !std::filesystem::exists(organization, error) ? checkpoint.string()
                                                                              : "";
}

// Whether there is no such file or folder, or only an empty one, as downloads that fail may leave.
inline bool is_absent(const std::filesystem::path& checkpoint) {
  std::error_code error;
  return !std::filesystem::exists(checkpoint, error) ||
         (std::filesystem::is_directory(checkpoint, error) &&
          std::filesystem::is_empty(checkpoint, error));
}

}  // namespace snug::hub
