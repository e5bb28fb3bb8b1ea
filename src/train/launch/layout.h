// Resolves a recipe's number of devices, nodes and threads, depending on who started this process,
// and makes the mpirun command for them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/dist/world.h"
#include "recipe/recipe.h"

namespace snug::launch {

// --hosts and --hostfile set devices and num_nodes unless they are given. Throws UserError if they
// contradict each other.
void resolve_hosts(recipe::Recipe& recipe);

// The same for a process that the user started: devices = auto becomes the number of GPUs.
void resolve_alone(recipe::Recipe& recipe, int visible_gpus);

// For one of several processes started by `starter`: the recipe takes their number, and what it
// gives itself must agree. Each process gets its share of the machine's cores.
void resolve_under(recipe::Recipe& recipe, const std::string& starter,
                   const dist::Position& position);

bool is_single(const recipe::Recipe& recipe);

// The mpirun command of a recipe, for Open MPI 4 and 5.

// The value of an environment variable, if it is set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> environment(const std::string& name);

struct MpirunOptions {
  std::string mpirun;  // its path
  std::string program;
  std::vector<std::string> words;
  int devices = 1;  // per machine
  int num_nodes = 1;
  std::string hosts;     // of the recipe; empty: this machine, or those of Slurm's allocation
  std::string hostfile;  // the same
  int num_threads = 1;   // per process
  std::vector<std::string> variables;  // names of variables to export to other machines
  bool is_root = false;
};

// argv for exec.
std::vector<std::string> mpirun_command(const MpirunOptions& options, const Environment& get);

// The names of this environment's variables that ranks on other machines need.
std::vector<std::string> variables_to_export(char** environ_text);

// The path of mpirun. If there is none, throws UserError that names the package.
std::string find_mpirun(int num_ranks, const Environment& get);

// The threads of each of `processes` on this machine: an equal share of the usable cores.
int threads_each(int processes);

// mpirun's own words without its frames and advice, for a message of one or two lines.
std::string condensed(const std::string& words);

}  // namespace snug::launch
