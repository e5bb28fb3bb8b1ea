// One thread an element of the output: writes are in order, and a patch's pixels, read thrice, stay
// in the cache.
// Bytes an element, T those of the output's type:
//   cut: reads 1, writes T
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/operators.h"

namespace snug::kernels::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    cut(ImagePatches a, float3 mean, float3 deviation, int64_t count) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= count) return;
  const int64_t side = a.patch_size, across = a.width / side;
  const int64_t per_picture = a.height / side * across;
  const int64_t column = i % side, row = i / side % side, channel = i / (side * side) % 3;
  const int64_t patch = i / (3 * side * side);
  const int64_t y = patch / per_picture * a.height + patch % per_picture / across * side + row;
  const int64_t x = patch % across * side + column;
  const float pixel = a.pixels[3 * (y * a.width + x) + channel];
  const float m = channel == 0 ? mean.x : channel == 1 ? mean.y : mean.z;
  const float d = channel == 0 ? deviation.x : channel == 1 ? deviation.y : deviation.z;
  static_cast<T*>(a.out)[i] = from_float<T>((pixel / 255.f - m) / d);
}

float3 three(const std::array<float, 3>& values) { return {values[0], values[1], values[2]}; }

}  // namespace

void image_patches(const ImagePatches& args, cudaStream_t stream) {
  const int64_t count =
      args.pictures * args.patches_per_picture() * 3 * args.patch_size * args.patch_size;
  if (count == 0) return;
  with_type(args.type, [&](auto type) {
    using T = decltype(type);
    launch("image_patches", cut<T>, blocks_for(count, kThreads), kThreads, 0, stream, args,
           three(args.mean), three(args.std), count);
  });
}

}  // namespace snug::kernels::cuda
