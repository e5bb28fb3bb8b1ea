// The Open MPI that a package contains, under PREFIX/lib/openmpi. Its built-in paths are those of
// the build machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace snug::dist {

// Its mpirun; empty if the program uses the system's Open MPI.
std::filesystem::path bundled_mpirun();

// Sets its present paths in the environment. Call before the program starts threads.
void locate_bundled_mpi();

}  // namespace snug::dist
