// For builds without CUDA, which have no tensors for NCCL.
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "core/dist/nccl_group.h"

namespace snug::dist {

std::unique_ptr<Group> make_nccl_group(std::unique_ptr<Group> /*host*/, at::Device /*device*/,
                                       double /*timeout_seconds*/) {
  throw UserError("this build of snug has no CUDA; run on cpu, or build with scripts/build --cuda");
}

}  // namespace snug::dist
