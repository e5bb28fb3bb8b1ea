// Which repository of a hub a folder stands for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace snug::hub {

// "ORG/NAME" of [FOLDER/]checkpoints/ORG/NAME, where `snug download ORG/NAME` puts a model; empty
// for any other path.
inline std::string hub_name(const std::filesystem::path& checkpoint) {
  const std::filesystem::path organization = checkpoint.parent_path();
  if (organization.parent_path().filename() != "checkpoints") return "";
  return (organization.filename() / checkpoint.filename()).string();
}

}  // namespace snug::hub
