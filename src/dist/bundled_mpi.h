// The Open MPI that a package carries beside the program, under PREFIX/lib/openmpi. The paths built
// into it are those of the machine that it was built on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace snug::dist {

// Its mpirun; empty where the program uses the machine's Open MPI.
std::filesystem::path bundled_mpirun();

// Tells it, by the environment, where it lies now. To be called before the program has threads.
void locate_bundled_mpi();

}  // namespace snug::dist
