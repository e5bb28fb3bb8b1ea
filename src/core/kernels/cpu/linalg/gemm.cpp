// The blocked product. C is cut into super-blocks of m_super x nc; for each, k is walked in steps
// of kc:
//   a thread takes some columns of B and packs them (kc x nc, in the shared cache)   | barrier
//   a thread takes a block of mc rows, packs A (mc x kc, in its own second-level cache) and
//   multiplies it with every panel of B, one register tile at a time.
// Whoever is free takes the next piece, so that a thread whose core is busy with another program
// holds up no more than the piece it is at.
// B is packed into two buffers in turn, so that one barrier a step is enough. A result in two bytes
// that takes several steps of k is summed in a float32 super-block and rounded at the last step.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/linalg/gemm.h"

#include <atomic>
#include <type_traits>

#include "core/kernels/cpu/linalg/isa/kernels.h"
#include "core/kernels/cpu/linalg/parallel.h"
#include "core/kernels/cpu/linalg/skinny.h"
#include "core/kernels/quantized_matrix.h"

namespace snug::kernels::cpu {
namespace {

struct Plan {
  int threads = 1;
  int64_t mc = 0, nc = 0, kc = 0, m_super = 0;
  int64_t depth = 0;        // of a panel of kc, in floats
  int64_t tile_lines = 0;   // quantized B: columns at a time
  int64_t col_parts = 1;    // few rows: a step's columns are shared out too
  bool in_scratch = false;  // sums of two-byte results between steps of k
};

struct Workspace {
  float* b[2] = {};
  float* a = nullptr;  // one block per thread
  int64_t a_stride = 0;
  char* numbers = nullptr;  // quantized B: a tile per thread
  int64_t numbers_stride = 0;
  float* scratch = nullptr;
};

const Tile& tile_for(const GemmArgs& args, const Kernels& kernels) {
  const bool both = args.a.type == Scalar::BF16 && args.b.type == Scalar::BF16;
  return both && kernels.bf16 ? *kernels.bf16 : kernels.tile;
}

// Columns of a quantized B whose numbers are made at once: one panel where a column's codes follow
// each other; where a row's do, as many as a line of the cache holds.
int64_t quantized_tile_lines(const GemmArgs& args, const Tile& tile) {
  constexpr int64_t kLineElements = 128;
  return args.b.row_stride == 1 ? tile.nr : round_up(kLineElements, tile.nr);
}

Plan make_plan(const GemmArgs& args, const Tile& tile) {
  constexpr int64_t kDepthFloats = 288, kBlockFloats = 256 * 288, kCols = 1152;
  const int64_t kDepth = kDepthFloats * tile.per_float;
  constexpr int64_t kSuperRows = 1536, kFewestRows = 48;
  Plan plan;
  plan.threads = resolve_threads(args.num_threads);
  // Equal steps rather than full ones and a rest: a short step pays for its stores with little
  // work.
  plan.kc = round_up(ceil_div(args.k, ceil_div(args.k, kDepth)), std::max(8, tile.depth_step));
  plan.depth = tile.packed_depth(plan.kc);
  plan.nc = round_up(ceil_div(args.n, ceil_div(args.n, kCols)), tile.nr);
  plan.in_scratch = args.c_type != Scalar::F32 && args.k > plan.kc;
  plan.m_super = plan.in_scratch ? std::min(args.m, kSuperRows) : args.m;
  const int64_t largest = std::max<int64_t>(tile.mr, kBlockFloats / plan.depth);
  const int64_t blocks = round_up(ceil_div(plan.m_super, largest), plan.threads);
  plan.mc = round_up(std::max(ceil_div(plan.m_super, blocks), kFewestRows), tile.mr);
  plan.col_parts = ceil_div(plan.threads, ceil_div(plan.m_super, plan.mc));
  if (args.quantized_b) plan.tile_lines = quantized_tile_lines(args, tile);
  return plan;
}

Workspace carve(Carver& carver, const GemmArgs& args, const Plan& plan, const Tile& tile) {
  Workspace work;
  for (float*& b : work.b) b = carver.take<float>(plan.depth * plan.nc + kPackSlack);
  work.a_stride = round_up(plan.mc * plan.depth + kPackSlack, 16);
  work.a = carver.take<float>(work.a_stride * plan.threads);
  if (args.quantized_b) {
    const int64_t elements = (plan.tile_lines + kPackSlack) * plan.kc;
    work.numbers_stride = round_up(elements * scalar_bytes(args.b.type), 64);
    work.numbers = carver.take<char>(work.numbers_stride * plan.threads);
  }
  if (plan.in_scratch) {
    work.scratch = carver.take<float>(round_up(plan.m_super, tile.mr) * plan.nc);
  }
  return work;
}

const void* element(const MatrixView& view, int64_t i, int64_t j) {
  return static_cast<const char*>(view.data) +
         (i * view.row_stride + j * view.col_stride) * scalar_bytes(view.type);
}

template <class Void>
Void* offset(Void* data, Scalar type, int64_t elements) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
  return data ? static_cast<Byte*>(data) + elements * scalar_bytes(type) : nullptr;
}

// One step: the product of rows [i0, i0+mb) and columns [j0, j0+nb) over k in [p0, p0+kb).
struct Step {
  int64_t super_row = 0, j0 = 0, nb = 0, p0 = 0, kb = 0;
  int64_t depth = 0;  // of the packed panels, in floats
  bool first = false, last = false;
  const float* b = nullptr;
};

class Product {
 public:
  Product(const GemmArgs& args, const Kernels& kernels, const Plan& plan, const Workspace& work)
      : args_(args), kernels_(kernels), tile_(tile_for(args, kernels)), plan_(plan), work_(work) {}

  // Called by every thread of the team with its own number.
  void run(int thread, int threads) {
    const TileScope scope(tile_);
    int parity = 0;
    for (int64_t i = 0; i < args_.m; i += plan_.m_super) {
      for (int64_t j = 0; j < args_.n; j += plan_.nc) {
        for (int64_t p = 0; p < args_.k; p += plan_.kc, parity ^= 1) {
          const int64_t kb = std::min(plan_.kc, args_.k - p);
          Step step{.super_row = i,
                    .j0 = j,
                    .nb = std::min(plan_.nc, args_.n - j),
                    .p0 = p,
                    .kb = kb,
                    .depth = tile_.packed_depth(kb),
                    .first = p == 0,
                    .last = p + plan_.kc >= args_.k,
                    .b = work_.b[parity]};
          // Nobody packs the next step before this one's barrier.
          if (thread == 0) next_share_[parity ^ 1] = 0;
          pack_b(step, work_.b[parity], next_share_[parity], thread, threads);
#pragma omp barrier
          // Everyone has left the step before, so its counter can be made ready for the next one.
          if (thread == 0) next_block_[parity ^ 1] = 0;
          take_blocks(step, next_block_[parity], thread);
        }
      }
    }
  }

 private:
  void pack_b(const Step& step, float* out, std::atomic<int>& next, int thread, int threads) const {
    const int shares = shares_for(threads);
    for (int share = next++; share < shares; share = next++) {
      const Range mine = share_of(step.nb, tile_.nr, share, shares);
      if (mine.begin < mine.end) pack_b_share(step, mine, out, thread);
    }
  }

  void pack_b_share(const Step& step, Range mine, float* out, int thread) const {
    if (args_.quantized_b) return pack_quantized(step, mine, out, thread);
    tile_.pack_b({.data = element(args_.b, step.p0, step.j0 + mine.begin),
                  .type = args_.b.type,
                  .line_stride = args_.b.col_stride,
                  .depth_stride = args_.b.row_stride,
                  .lines = mine.end - mine.begin,
                  .lines_readable = args_.n - step.j0 - mine.begin,
                  .depth = step.kb,
                  .out = out + mine.begin * step.depth});
  }

  // Columns `mine` of the step, a tile of numbers at a time.
  void pack_quantized(const Step& step, Range mine, float* out, int thread) const {
    const QuantizedMatrix& weight = *args_.quantized_b;
    void* numbers = work_.numbers + thread * work_.numbers_stride;
    const bool along_depth = args_.b.row_stride == 1;
    for (int64_t j = mine.begin; j < mine.end; j += plan_.tile_lines) {
      const int64_t lines = std::min(plan_.tile_lines, mine.end - j), column = step.j0 + j;
      const int64_t stride = along_depth ? step.kb : plan_.tile_lines + kPackSlack;
      kernels_.dequantize(
          {.weight = &weight,
           .first = along_depth ? column * weight.cols + step.p0 : step.p0 * weight.cols + column,
           .count = along_depth ? step.kb : lines,
           .stretches = along_depth ? lines : step.kb,
           .step = weight.cols,
           .out = numbers,
           .type = args_.b.type,
           .out_stride = stride});
      tile_.pack_b({.data = numbers,
                    .type = args_.b.type,
                    .line_stride = along_depth ? stride : 1,
                    .depth_stride = along_depth ? 1 : stride,
                    .lines = lines,
                    .lines_readable = along_depth ? lines : stride,
                    .depth = step.kb,
                    .out = out + j * step.depth});
    }
  }

  void take_blocks(const Step& step, std::atomic<int64_t>& next, int thread) const {
    const int64_t rows = std::min(plan_.m_super, args_.m - step.super_row);
    float* a = work_.a + thread * work_.a_stride;
    for (;;) {
      const int64_t block = next.fetch_add(1, std::memory_order_relaxed);
      const int64_t begin = block / plan_.col_parts * plan_.mc;
      if (begin >= rows) return;
      const int64_t count = std::min(plan_.mc, rows - begin);
      const Range columns =
          share_of(step.nb, tile_.nr, int(block % plan_.col_parts), int(plan_.col_parts));
      const int64_t row = step.super_row + begin;
      if (columns.begin == columns.end) continue;
      tile_.pack_a({.data = element(args_.a, row, step.p0),
                    .type = args_.a.type,
                    .line_stride = args_.a.row_stride,
                    .depth_stride = args_.a.col_stride,
                    .lines = count,
                    .lines_readable = args_.m - row,
                    .depth = step.kb,
                    .out = a});
      multiply_block(step, a, {row, row + count}, columns);
    }
  }

  void multiply_block(const Step& step, const float* a, Range rows, Range columns) const {
    for (int64_t j = columns.begin; j < columns.end; j += tile_.nr) {
      for (int64_t i = rows.begin; i < rows.end; i += tile_.mr) {
        const Patch patch{.row = i,
                          .col = step.j0 + j,
                          .rows = std::min<int64_t>(tile_.mr, rows.end - i),
                          .cols = std::min<int64_t>(tile_.nr, columns.end - j)};
        multiply_one(step, patch, a + (i - rows.begin) * step.depth, step.b + j * step.depth);
      }
    }
  }

  struct Patch {  // of C, a register tile or what the border leaves of it
    int64_t row, col, rows, cols;
  };

  void multiply_one(const Step& step, const Patch& patch, const float* a, const float* b) const {
    const bool whole = patch.rows == tile_.mr && patch.cols == tile_.nr;
    if (args_.c_type == Scalar::F32) {
      const bool add = args_.accumulate || !step.first;
      float* c = static_cast<float*>(args_.c) + patch.row * args_.c_row_stride + patch.col;
      if (whole && !(step.last && args_.bias)) {
        tile_.multiply(step.depth, a, b, c, args_.c_row_stride, args_.alpha, add);
      } else {
        through_registers(step, patch, a, b, add);
      }
    } else if (plan_.in_scratch) {
      float* sums = work_.scratch + (patch.row - step.super_row) * plan_.nc + (patch.col - step.j0);
      tile_.multiply(step.depth, a, b, sums, plan_.nc, 1.f, !step.first);
      if (step.last) store(patch, sums, plan_.nc, args_.accumulate, true);
    } else {
      through_registers(step, patch, a, b, args_.accumulate);
    }
  }

  // A patch at the border, with a bias, or in two bytes: summed aside, then stored as far as it
  // exists.
  void through_registers(const Step& step, const Patch& patch, const float* a, const float* b,
                         bool add) const {
    alignas(64) float sums[kMaxTileFloats];
    tile_.multiply(step.depth, a, b, sums, tile_.nr, 1.f, false);
    store(patch, sums, tile_.nr, add, step.last);
  }

  void store(const Patch& patch, const float* sums, int64_t stride, bool add,
             bool with_bias) const {
    kernels_.store({.source = sums,
                    .source_stride = stride,
                    .rows = patch.rows,
                    .cols = patch.cols,
                    .c = offset(args_.c, args_.c_type, patch.row * args_.c_row_stride + patch.col),
                    .type = args_.c_type,
                    .c_stride = args_.c_row_stride,
                    .alpha = args_.alpha,
                    .accumulate = add,
                    .bias = with_bias ? offset(args_.bias, args_.c_type, patch.col) : nullptr});
  }

  const GemmArgs& args_;
  const Kernels& kernels_;
  const Tile& tile_;
  const Plan& plan_;
  const Workspace& work_;
  std::atomic<int64_t> next_block_[2] = {0, 0};
  std::atomic<int> next_share_[2] = {0, 0};
};

bool is_empty(const GemmArgs& args) { return args.m <= 0 || args.n <= 0; }

}  // namespace

bool multiplies_bf16() { return active_kernels().bf16 != nullptr; }

int64_t gemm_workspace_bytes(const GemmArgs& args) {
  if (is_empty(args)) return 0;
  if (is_skinny(args)) return skinny_workspace_bytes(args);
  const Kernels& kernels = active_kernels();
  Carver carver(nullptr);
  const Tile& tile = tile_for(args, kernels);
  carve(carver, args, make_plan(args, tile), tile);
  return carver.used();
}

void gemm(const GemmArgs& args, void* workspace) {
  if (is_empty(args)) return;
  if (is_skinny(args)) return skinny_gemm(args, workspace);
  const Kernels& kernels = active_kernels();
  const Tile& tile = tile_for(args, kernels);
  const Plan plan = make_plan(args, tile);
  Carver carver(workspace);
  const Workspace work = carve(carver, args, plan, tile);
  Product product(args, kernels, plan, work);
#pragma omp parallel num_threads(plan.threads)
  product.run(omp_get_thread_num(), omp_get_num_threads());
}

}  // namespace snug::kernels::cpu
