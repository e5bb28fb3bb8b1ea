// How many files know a memory technique by its name, apart from the files that are techniques, the
// policies that they make, and what translates other programs' names. Each of these
// files has to be read and changed when a technique is added, so their number only falls.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>
#include <string>

#include "base/files.h"
#include "support/source_dir.h"

namespace snug {
namespace {

namespace fs = std::filesystem;

bool may_name_techniques(const std::string& file) {
  for (const char* place :
       {"recipe/techniques/", "recipe/options/", "recipe/recipe.h", "recipe/import/",
        "plan/rivals/", "plan/command/plan_like", "engine/exec/policies/", "engine/techniques/"})
    if (file.starts_with(place)) return true;
  return false;
}

TEST(TechniqueNames, AreKnownInFewFiles) {
  const std::regex names(
      "activation_checkpointing|activation_offload|optimizer_in_backward|optimizer_offload|"
      "delayed_parameter_update|weight_streaming|expert_streaming|cast_cache|cuda_graphs|"
      "ActivationCheckpointing|ActivationOffload|OptimizerInBackward|OptimizerOffload|"
      "DelayedParameterUpdate|WeightStreaming|ExpertStreaming|CastCache|CudaGraphs");
  std::set<std::string> found;
  const fs::path source = tests::source_dir() / "src";
  for (const auto& entry : fs::recursive_directory_iterator(source)) {
    const std::string file = entry.path().lexically_relative(source).string();
    if ((entry.path().extension() != ".cpp" && entry.path().extension() != ".h") ||
        may_name_techniques(file))
      continue;
    if (std::regex_search(read_file(entry.path()), names)) found.insert(file);
  }
  constexpr size_t kKnown = 5;
  std::string list;
  for (const std::string& file : found) list += "\n  " + file;
  EXPECT_LE(found.size(), kKnown) << "a technique's knowledge belongs in its own files, not"
                                  << list;
  EXPECT_GE(found.size(), kKnown) << "lower kKnown to what is left:" << list;
}

}  // namespace
}  // namespace snug
