// Which repository of a hub a folder stands for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace snug::hub {

// "ORG/NAME" of [FOLDER/]checkpoints/ORG/NAME, where `snug download ORG/NAME` puts a model; empty
// for any other path.
inline std::string hub_name(const std::filesystem::path& checkpoint) {
  const std::filesystem::path organization = checkpoint.parent_path();
  if (organization.parent_path().filename() != "checkpoints") return "";
  return (organization.filename() / checkpoint.filename()).string();
}

// Whether there is no such file or folder, or only an empty one, as downloads that fail may leave.
inline bool is_absent(const std::filesystem::path& checkpoint) {
  std::error_code error;
  return !std::filesystem::exists(checkpoint, error) ||
         (std::filesystem::is_directory(checkpoint, error) &&
          std::filesystem::is_empty(checkpoint, error));
}

}  // namespace snug::hub
