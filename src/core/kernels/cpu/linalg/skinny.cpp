// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/linalg/skinny.h"

#include "core/kernels/cpu/linalg/isa/kernels.h"
#include "core/kernels/cpu/linalg/parallel.h"
#include "core/kernels/quantized_matrix.h"

namespace snug::kernels::cpu {
namespace {

constexpr int64_t kChunkCols = 512;  // sums of one chunk stay in the first-level cache
constexpr int64_t kAxpyRows = 4;     // beyond, the sums' loads and stores cost more than packing B

constexpr int64_t kTileCols = 24;  // columns of a quantized B whose numbers are made at once

bool is_dot(const GemmArgs& args) { return args.b.row_stride == 1; }

struct Workspace {
  float* a = nullptr;       // (m, k)
  float* sums = nullptr;    // (m, kChunkCols) per thread
  char* numbers = nullptr;  // quantized B: (kTileCols, k) per thread
  int64_t numbers_stride = 0;
};

Workspace carve(Carver& carver, const GemmArgs& args, int threads) {
  Workspace work;
  work.a = carver.take<float>(args.m * args.k);
  work.sums = carver.take<float>(threads * args.m * kChunkCols);
  if (args.quantized_b) {
    work.numbers_stride = round_up(kTileCols * args.k * scalar_bytes(args.b.type), 64);
    work.numbers = carver.take<char>(threads * work.numbers_stride);
  }
  return work;
}

// A as float32 rows, whatever its type and order.
void unpack_a(const GemmArgs& args, const Kernels& kernels, float* out) {
  const int64_t bytes = scalar_bytes(args.a.type);
  const char* data = static_cast<const char*>(args.a.data);
  if (args.a.col_stride == 1) {
    for (int64_t i = 0; i < args.m; ++i) {
      kernels.unpack(data + i * args.a.row_stride * bytes, args.a.type, 1, args.k,
                     out + i * args.k);
    }
    return;
  }
  for (int64_t i = 0; i < args.m; ++i) {
    kernels.unpack(data + i * bytes, args.a.type, args.a.col_stride, args.k, out + i * args.k);
  }
}

// Whether codes go straight into multiply-adds.
bool is_direct(const GemmArgs& args, const Kernels& kernels) {
  return args.quantized_b && kernels.quantized_dot &&
         traits(args.quantized_b->format).four_bits() && args.k == args.quantized_b->cols &&
         args.k % kWeightBlock == 0;
}

// The sums of columns of a quantized B, whose numbers are made a few columns at a time.
void multiply_quantized(const GemmArgs& args, const Kernels& kernels, const SkinnyArgs& block,
                        int64_t first, void* numbers) {
  if (is_direct(args, kernels)) {
    return kernels.quantized_dot({.weight = args.quantized_b,
                                  .type = args.b.type,
                                  .m = args.m,
                                  .first = first,
                                  .cols = block.cols,
                                  .a = block.a,
                                  .a_stride = block.a_stride,
                                  .sums = block.sums,
                                  .sums_stride = block.sums_stride});
  }
  for (int64_t j = 0; j < block.cols; j += kTileCols) {
    const int64_t cols = std::min(kTileCols, block.cols - j);
    kernels.dequantize({.weight = args.quantized_b,
                        .first = (first + j) * args.k,
                        .count = cols * args.k,
                        .out = numbers,
                        .type = args.b.type});
    SkinnyArgs tile = block;
    tile.cols = cols;
    tile.b = numbers;
    tile.b_stride = args.k;
    tile.sums += j;
    kernels.skinny_dot(tile);
  }
}

void multiply_columns(const GemmArgs& args, const Kernels& kernels, const float* a, float* sums,
                      void* numbers, Range columns) {
  const int64_t bytes = scalar_bytes(args.b.type);
  const int64_t c_bytes = scalar_bytes(args.c_type);
  for (int64_t j = columns.begin; j < columns.end; j += kChunkCols) {
    const int64_t cols = std::min(kChunkCols, columns.end - j);
    const SkinnyArgs block{
        .m = args.m,
        .cols = cols,
        .k = args.k,
        .a = a,
        .a_stride = args.k,
        .b = static_cast<const char*>(args.b.data) + j * args.b.col_stride * bytes,
        .type = args.b.type,
        .b_stride = is_dot(args) ? args.b.col_stride : args.b.row_stride,
        .sums = sums,
        .sums_stride = cols};
    if (args.quantized_b && args.k > 0) {
      multiply_quantized(args, kernels, block, j, numbers);
    } else {
      (is_dot(args) ? kernels.skinny_dot : kernels.skinny_axpy)(block);
    }
    kernels.store(
        {.source = sums,
         .source_stride = cols,
         .rows = args.m,
         .cols = cols,
         .c = static_cast<char*>(args.c) + j * c_bytes,
         .type = args.c_type,
         .c_stride = args.c_row_stride,
         .alpha = args.alpha,
         .accumulate = args.accumulate,
         .bias = args.bias ? static_cast<const char*>(args.bias) + j * c_bytes : nullptr});
  }
}

}  // namespace

bool is_skinny(const GemmArgs& args) {
  if (args.k <= 0) return true;
  if (args.quantized_b && !is_dot(args)) return false;  // its numbers are made tile by tile
  return args.m <= (is_dot(args) ? kMaxSkinnyRows : kAxpyRows);
}

int64_t skinny_workspace_bytes(const GemmArgs& args) {
  Carver carver(nullptr);
  carve(carver, args, resolve_threads(args.num_threads));
  return carver.used();
}

void skinny_gemm(const GemmArgs& args, void* workspace) {
  const Kernels& kernels = active_kernels();
  const int threads = resolve_threads(args.num_threads);
  Carver carver(workspace);
  const Workspace work = carve(carver, args, threads);
  unpack_a(args, kernels, work.a);
  if (is_direct(args, kernels)) {
    for (int64_t i = 0; i < args.m; ++i) kernels.split_pairs(work.a + i * args.k, args.k);
  }
#pragma omp parallel num_threads(threads)
  {
    const int thread = omp_get_thread_num(), shares = shares_for(omp_get_num_threads());
#pragma omp for schedule(dynamic, 1) nowait
    for (int share = 0; share < shares; ++share) {
      multiply_columns(args, kernels, work.a, work.sums + thread * args.m * kChunkCols,
                       work.numbers + thread * work.numbers_stride,
                       share_of(args.n, 16, share, shares));
    }
  }
}

}  // namespace snug::kernels::cpu
