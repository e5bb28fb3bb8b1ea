// The one GPU that a run may use. In a build without CUDA there is none: see cuda_device_stub.cpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace snug::setup::cuda {

bool is_built();
int count();             // visible GPUs
std::string why_none();  // the reason where count() is 0

// Of the first visible GPU.
std::string name();
int64_t total_bytes();
int64_t free_bytes();  // that nobody has at this moment
// What the driver keeps of it for this program, beside what tensors and libraries allocate. Call
// after prepare().
int64_t driver_bytes();

// Takes it into use: sums of products stay float32, and what cuBLAS keeps for itself is allocated
// now, so that it is not mistaken for some operator's.
void prepare();

}  // namespace snug::setup::cuda
