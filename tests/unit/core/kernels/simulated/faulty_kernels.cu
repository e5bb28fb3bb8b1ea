// SPDX-License-Identifier: Apache-2.0
#include "unit/core/kernels/simulated/faulty_kernels.h"

#include "core/kernels/cuda/elements.cuh"

namespace snug::kernels::cuda {
namespace {

constexpr int kThreads = 64;

template <bool kBarrier>
__global__ void reversed(const float* in, float* out) {
  __shared__ float values[kThreads];
  values[threadIdx.x] = in[threadIdx.x];
  if (kBarrier) __syncthreads();
  out[threadIdx.x] = values[kThreads - 1 - threadIdx.x];
}

__global__ void write_up_to(float* out, int64_t count) {
  if (threadIdx.x <= count) out[threadIdx.x] = 1;
}

__global__ void copy_next(const float* in, float* out, int64_t count) {
  if (threadIdx.x < count) out[threadIdx.x] = in[threadIdx.x + 1];
}

__global__ void some_wait() {
  if (threadIdx.x != 17) __syncthreads();
}

__global__ void wait_in_two_places(int* there) {
  if (threadIdx.x < 32) {
    __syncthreads();
    if (there != nullptr) *there = 1;
  } else {
    __syncthreads();
    if (there != nullptr) *there = 2;
  }
}

__global__ void exchange_of_half(float* out) {
  float value = 1;
  if (threadIdx.x < 16) value = __shfl_xor_sync(0xffffffffu, value, 1);
  if (out != nullptr) *out = value;
}

__global__ void copy_four(const float* in, float* out) {
  *reinterpret_cast<Four<float>*>(out) = *reinterpret_cast<const Four<float>*>(in);
}

__global__ void write_one(float* out) { *out = static_cast<float>(threadIdx.x); }
__global__ void add_block(float* out) {
  if (threadIdx.x == 0) *out += 1;
}

__global__ void read_shared(float* out) {
  __shared__ float values[kThreads];
  if (threadIdx.x == 3) values[3] = 3;
  __syncthreads();
  *out = values[3];
  if (threadIdx.x == 0) *out = values[4];
}

__global__ void pass_in_warp(float* out, bool with_syncwarp) {
  __shared__ float values[kThreads];
  values[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (with_syncwarp) __syncwarp();
  out[threadIdx.x] = values[threadIdx.x ^ 1];
}

__global__ void write_shared(float* out, int64_t at) {
  float* values = dynamic_shared_floats();
  values[at] = 1;
  *out = values[at];
}

}  // namespace

void reverse(const float* in, float* out) {
  launch("reverse", reversed<true>, 1, kThreads, 0, nullptr, in, out);
}
void reverse_without_barrier(const float* in, float* out) {
  launch("reverse_without_barrier", reversed<false>, 1, kThreads, 0, nullptr, in, out);
}
void overrun(float* out, int64_t count) {
  launch("overrun", write_up_to, 1, kThreads, 0, nullptr, out, count);
}
void read_behind(const float* in, float* out, int64_t count) {
  launch("read_behind", copy_next, 1, kThreads, 0, nullptr, in, out, count);
}
void barrier_for_some() { launch("barrier_for_some", some_wait, 1, kThreads, 0, nullptr); }
void two_barriers() {
  launch("two_barriers", wait_in_two_places, 1, kThreads, 0, nullptr, nullptr);
}
void half_a_warp() { launch("half_a_warp", exchange_of_half, 1, kThreads, 0, nullptr, nullptr); }
void misaligned(const float* in, float* out) {
  launch("misaligned", copy_four, 1, 1, 0, nullptr, in, out);
}
void same_element(float* out) { launch("same_element", write_one, 1, 2, 0, nullptr, out); }
void same_element_of_blocks(float* out) {
  launch("same_element_of_blocks", add_block, 2, 32, 0, nullptr, out);
}
void read_undefined_shared(float* out) {
  launch("read_undefined_shared", read_shared, 1, 1, 0, nullptr, out);
}
void through_syncwarp(float* out, bool with_syncwarp) {
  launch("through_syncwarp", pass_in_warp, 1, kThreads, 0, nullptr, out, with_syncwarp);
}
void too_much_shared(float* out, int64_t asked_bytes, int64_t at) {
  launch("too_much_shared", write_shared, 1, 1, asked_bytes, nullptr, out, at);
}
void on_grid(const Grid& grid, int64_t threads, int64_t shared_bytes) {
  launch("on_grid", some_wait, grid, threads, shared_bytes, nullptr);
}

}  // namespace snug::kernels::cuda
