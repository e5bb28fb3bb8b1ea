// SPDX-License-Identifier: Apache-2.0
#include "models/run_folder.h"

namespace snug::models {

namespace fs = std::filesystem;

std::string found_of_a_run(const fs::path& folder) {
  const bool is_checkpoint =
      fs::exists(folder / "state.json") && fs::exists(folder / "model.safetensors");
  const fs::path trained = (folder / (is_checkpoint ? "../final" : "final")).lexically_normal();
  std::string text = is_checkpoint ? "; it is a checkpoint, from which --resume goes on" : "";
  if (fs::is_directory(trained)) text += "; what the run trained is in " + trained.string();
  return text;
}

}  // namespace snug::models
