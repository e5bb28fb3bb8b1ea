// The one GPU that a run may use. Builds without CUDA use cuda_device_stub.cpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace snug::engine::cuda {

bool is_built();
int count();             // visible GPUs
std::string why_none();  // the reason where count() is 0

// The name of the first visible GPU.
std::string name();
int64_t total_bytes();
int64_t free_bytes();  // free at this moment
// GPU memory that the driver keeps for this program, besides allocations of tensors and libraries.
// Call after prepare().
int64_t driver_bytes();

// Initializes the GPU: products accumulate in float32, and cuBLAS allocates its workspace now, so
// that the ledger does not count it for an operator. `own_stream`: all is done on a stream of its
// own, which recording needs (core/ops/device/recording.h).
void prepare(bool own_stream);

}  // namespace snug::engine::cuda
