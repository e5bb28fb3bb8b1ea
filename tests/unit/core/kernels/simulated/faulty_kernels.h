// Kernels that do what they may not, each in one way.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels/cuda/launch.cuh"

namespace snug::kernels::cuda {

void reverse(const float* in, float* out);  // right: through shared memory
void reverse_without_barrier(const float* in, float* out);
void overrun(float* out, int64_t count);                       // by one element
void read_behind(const float* in, float* out, int64_t count);  // by one element
void barrier_for_some();
void two_barriers();
void half_a_warp();
void misaligned(const float* in, float* out);
void same_element(float* out);  // threads of a block
void same_element_of_blocks(float* out);
void read_undefined_shared(float* out);
void through_syncwarp(float* out, bool with_syncwarp);
void too_much_shared(float* out, int64_t asked_bytes, int64_t at);
void on_grid(const Grid& grid, int64_t threads, int64_t shared_bytes);

}  // namespace snug::kernels::cuda
