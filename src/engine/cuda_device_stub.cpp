// For builds without CUDA: reports no GPU.
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda_device.h"

namespace snug::engine::cuda {

bool is_built() { return false; }
int count() { return 0; }
std::string why_none() { return "this build has no CUDA"; }
std::string name() { return {}; }
int64_t total_bytes() { return 0; }
int64_t free_bytes() { return 0; }
int64_t driver_bytes() { return 0; }
void prepare(bool /*own_stream*/) {}

}  // namespace snug::engine::cuda
