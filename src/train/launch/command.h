// The mpirun command of a recipe, as OpenMPI 4 and 5 understand it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace snug::launch {

// The value of an environment variable, if it is set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> environment(const std::string& name);

struct MpirunOptions {
  std::string mpirun;  // its path
  std::string program;
  std::vector<std::string> words;
  int devices = 1;  // a machine
  int num_nodes = 1;
  std::string hosts;     // of the recipe; empty: this machine, or those of Slurm's allocation
  std::string hostfile;  // the same
  int num_threads = 1;   // of each process
  std::vector<std::string> variables;  // set here that other machines are to have too
  bool is_root = false;
};

// argv for exec.
std::vector<std::string> mpirun_command(const MpirunOptions& options, const Environment& get);

// Names of variables of this environment that ranks on other machines need.
std::vector<std::string> variables_to_export(char** environ_text);

// Where mpirun is. Throws UserError that names the package where it is not.
std::string find_mpirun(int num_ranks, const Environment& get);

// Threads that leave no core to two of `processes` on this machine: the cores this process may run
// on, shared out.
int threads_each(int processes);

// mpirun's own words without its frames and advice, for a message of one or two lines.
std::string condensed(const std::string& words);

}  // namespace snug::launch
