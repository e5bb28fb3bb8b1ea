// Decides what this process is: a run of its own, the supervisor that starts a run's processes, or
// one of those. In a run of several processes each rank has a keeper, and its output is in
// out_dir/logs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace snug::launch {

// Returns nothing if the run starts in this process, with devices, num_nodes and num_threads set in
// `recipe`; otherwise the exit code, after the run. `check` checks the recipe, once in each process
// that continues; `count_gpus` returns the number of visible GPUs. `take_folder` locks out_dir: it
// is called once, after `check`, in the process that outlives the others (or in rank 0, if none of
// ours does). Throws UserError.
std::optional<int> start(
    recipe::Recipe& recipe, const std::vector<std::string>& words,
    const std::function<void()>& check, const std::function<int()>& count_gpus,
    const std::function<void()>& take_folder = [] {});

// Reports the end of this process to the one that started it. False if there is none, and it must
// print its error itself.
bool tell_end(int exit_code, const std::string& text, bool lost_another_rank);

}  // namespace snug::launch
