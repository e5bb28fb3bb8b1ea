// The register tile for AMX-BF16: 32 x 32 sums in four tile registers, eight loads' worth of work
// for each load of two tiles of A and two of B. The tile registers belong to a thread while it
// multiplies; their shapes are set when it begins and given up when it ends.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/linalg/bf16_pairs.h"

namespace snug::kernels::cpu {
namespace {

constexpr int kSize = 32;                           // rows and columns
constexpr int kTileElements = kGroup * kStepPairs;  // one tile register: 16 rows of 64 bytes

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

void begin_thread() {
  static const TileConfig config;
  _tile_loadconfig(&config);
}
void end_thread() { _tile_release(); }

void multiply_tile(int64_t k, const float* a, const float* b, float* c, int64_t c_stride,
                   float alpha, bool accumulate) {
  const auto stride = size_t(c_stride) * sizeof(float);
  float* low = c + kGroup * c_stride;
  if (accumulate && alpha == 1.f) {
    _tile_loadd(0, c, stride);
    _tile_loadd(1, c + kGroup, stride);
    _tile_loadd(2, low, stride);
    _tile_loadd(3, low + kGroup, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (; k > 0; k -= kStepPairs, a += 2 * kTileElements, b += 2 * kTileElements) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_loadd(7, b + kTileElements, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + kTileElements, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  if (alpha == 1.f) {
    _tile_stored(0, c, stride);
    _tile_stored(1, c + kGroup, stride);
    _tile_stored(2, low, stride);
    _tile_stored(3, low + kGroup, stride);
    return;
  }
  alignas(64) float sums[kSize * kSize];
  constexpr size_t kStride = kSize * sizeof(float);
  _tile_stored(0, sums, kStride);
  _tile_stored(1, sums + kGroup, kStride);
  _tile_stored(2, sums + kGroup * kSize, kStride);
  _tile_stored(3, sums + kGroup * kSize + kGroup, kStride);
  for (int i = 0; i < kSize; ++i) {
    for (int j = 0; j < kSize; ++j) {
      float& out = c[i * c_stride + j];
      out = alpha * sums[i * kSize + j] + (accumulate ? out : 0.f);
    }
  }
}

constexpr Tile kTile = {.mr = kSize,
                        .nr = kSize,
                        .depth_step = kStepDepth,
                        .per_float = 2,
                        .multiply = multiply_tile,
                        .pack_a = pack_pairs<Side::A, kSize>,
                        .pack_b = pack_pairs<Side::B, kSize>,
                        .begin_thread = begin_thread,
                        .end_thread = end_thread};

}  // namespace

const Tile& amx_tile() { return kTile; }

}  // namespace snug::kernels::cpu
