// Collectives of CUDA tensors over NCCL, and of host values over MPI.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/dist/group.h"

namespace snug::dist {

// `host`: the same group over MPI. Throws UserError in a build without CUDA.
std::unique_ptr<Group> make_nccl_group(std::unique_ptr<Group> host, at::Device device,
                                       double timeout_seconds);

}  // namespace snug::dist
