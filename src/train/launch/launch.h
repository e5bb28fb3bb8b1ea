// What this process is: a run of its own, the supervisor that starts a run's processes, or one of
// those. In a run of many each rank has a keeper, and everything that ranks say lies in
// out_dir/logs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace snug::launch {

// Returns nothing where the run is to begin in this process, with what is known of its place in
// `recipe` (devices, num_nodes, num_threads); else the exit code, when all is over. `check` checks
// the recipe and is called once in each process that goes on; `count_gpus` says how many GPUs this
// machine shows. `take_folder` takes out_dir for the run: it is called once, after `check`, in the
// process that outlives the others (or in rank 0, where nobody of ours does). Throws UserError.
std::optional<int> start(
    recipe::Recipe& recipe, const std::vector<std::string>& words,
    const std::function<void()>& check, const std::function<int()>& count_gpus,
    const std::function<void()>& take_folder = [] {});

// Tells whoever started this process why it ends. False where nobody listens, and it has to tell
// the person itself.
bool tell_end(int exit_code, const std::string& text, bool lost_another_rank);

}  // namespace snug::launch
