// The blocked product. C is cut into super-blocks of m_super x nc; for each, k is walked in steps
// of kc:
//   all threads pack B (kc x nc, in the shared cache)   | barrier
//   a thread takes a block of mc rows, packs A (mc x kc, in its own second-level cache) and
//   multiplies it with every panel of B, one register tile at a time.
// B is packed into two buffers in turn, so that one barrier a step is enough. A result in two bytes
// that takes several steps of k is summed in a float32 super-block and rounded at the last step.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/linalg/gemm.h"

#include <atomic>
#include <type_traits>

#include "kernels/cpu/linalg/kernels.h"
#include "kernels/cpu/linalg/parallel.h"
#include "kernels/cpu/linalg/skinny.h"

namespace snug::kernels::cpu {
namespace {

struct Plan {
  int threads = 1;
  int64_t mc = 0, nc = 0, kc = 0, m_super = 0;
  int64_t col_parts = 1;    // few rows: a step's columns are shared out too
  bool in_scratch = false;  // sums of two-byte results between steps of k
};

struct Workspace {
  float* b[2] = {};
  float* a = nullptr;  // one block per thread
  int64_t a_stride = 0;
  float* scratch = nullptr;
};

Plan make_plan(const GemmArgs& args, const Kernels& kernels) {
  constexpr int64_t kDepth = 288, kBlockFloats = 256 * 288, kCols = 1152;
  constexpr int64_t kSuperRows = 1536, kFewestRows = 48;
  Plan plan;
  plan.threads = resolve_threads(args.num_threads);
  // Equal steps rather than full ones and a rest: a short step pays for its stores with little
  // work.
  plan.kc = round_up(ceil_div(args.k, ceil_div(args.k, kDepth)), 8);
  plan.nc = round_up(ceil_div(args.n, ceil_div(args.n, kCols)), kernels.nr);
  plan.in_scratch = args.c_type != Scalar::F32 && args.k > plan.kc;
  plan.m_super = plan.in_scratch ? std::min(args.m, kSuperRows) : args.m;
  const int64_t largest = std::max<int64_t>(kernels.mr, kBlockFloats / plan.kc);
  const int64_t blocks = round_up(ceil_div(plan.m_super, largest), plan.threads);
  plan.mc = round_up(std::max(ceil_div(plan.m_super, blocks), kFewestRows), kernels.mr);
  plan.col_parts = ceil_div(plan.threads, ceil_div(plan.m_super, plan.mc));
  return plan;
}

Workspace carve(Carver& carver, const Plan& plan, const Kernels& kernels) {
  Workspace work;
  for (float*& b : work.b) b = carver.take<float>(plan.kc * plan.nc + kPackSlack);
  work.a_stride = round_up(plan.mc * plan.kc + kPackSlack, 16);
  work.a = carver.take<float>(work.a_stride * plan.threads);
  if (plan.in_scratch) {
    work.scratch = carver.take<float>(round_up(plan.m_super, kernels.mr) * plan.nc);
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
  bool first = false, last = false;
  const float* b = nullptr;
};

class Product {
 public:
  Product(const GemmArgs& args, const Kernels& kernels, const Plan& plan, const Workspace& work)
      : args_(args), kernels_(kernels), plan_(plan), work_(work) {}

  // Called by every thread of the team with its own number.
  void run(int thread, int threads) {
    int parity = 0;
    for (int64_t i = 0; i < args_.m; i += plan_.m_super) {
      for (int64_t j = 0; j < args_.n; j += plan_.nc) {
        for (int64_t p = 0; p < args_.k; p += plan_.kc, parity ^= 1) {
          Step step{.super_row = i,
                    .j0 = j,
                    .nb = std::min(plan_.nc, args_.n - j),
                    .p0 = p,
                    .kb = std::min(plan_.kc, args_.k - p),
                    .first = p == 0,
                    .last = p + plan_.kc >= args_.k,
                    .b = work_.b[parity]};
          pack_b_share(step, work_.b[parity], thread, threads);
#pragma omp barrier
          // Everyone has left the step before, so its counter can be made ready for the next one.
          if (thread == 0) next_block_[parity ^ 1] = 0;
          take_blocks(step, next_block_[parity], thread);
        }
      }
    }
  }

 private:
  void pack_b_share(const Step& step, float* out, int thread, int threads) const {
    const Range mine = share_of(step.nb, kernels_.nr, thread, threads);
    if (mine.begin == mine.end) return;
    kernels_.pack_b({.data = element(args_.b, step.p0, step.j0 + mine.begin),
                     .type = args_.b.type,
                     .line_stride = args_.b.col_stride,
                     .depth_stride = args_.b.row_stride,
                     .lines = mine.end - mine.begin,
                     .lines_readable = args_.n - step.j0 - mine.begin,
                     .depth = step.kb,
                     .out = out + mine.begin * step.kb});
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
          share_of(step.nb, kernels_.nr, int(block % plan_.col_parts), int(plan_.col_parts));
      const int64_t row = step.super_row + begin;
      if (columns.begin == columns.end) continue;
      kernels_.pack_a({.data = element(args_.a, row, step.p0),
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
    for (int64_t j = columns.begin; j < columns.end; j += kernels_.nr) {
      for (int64_t i = rows.begin; i < rows.end; i += kernels_.mr) {
        const Tile tile{.row = i,
                        .col = step.j0 + j,
                        .rows = std::min<int64_t>(kernels_.mr, rows.end - i),
                        .cols = std::min<int64_t>(kernels_.nr, columns.end - j)};
        multiply_one(step, tile, a + (i - rows.begin) * step.kb, step.b + j * step.kb);
      }
    }
  }

  struct Tile {
    int64_t row, col, rows, cols;
  };

  void multiply_one(const Step& step, const Tile& tile, const float* a, const float* b) const {
    const bool whole = tile.rows == kernels_.mr && tile.cols == kernels_.nr;
    if (args_.c_type == Scalar::F32) {
      const bool add = args_.accumulate || !step.first;
      float* c = static_cast<float*>(args_.c) + tile.row * args_.c_row_stride + tile.col;
      if (whole && !(step.last && args_.bias)) {
        kernels_.multiply_tile(step.kb, a, b, c, args_.c_row_stride, args_.alpha, add);
      } else {
        through_registers(step, tile, a, b, add);
      }
    } else if (plan_.in_scratch) {
      float* sums = work_.scratch + (tile.row - step.super_row) * plan_.nc + (tile.col - step.j0);
      kernels_.multiply_tile(step.kb, a, b, sums, plan_.nc, 1.f, !step.first);
      if (step.last) store(tile, sums, plan_.nc, args_.accumulate, true);
    } else {
      through_registers(step, tile, a, b, args_.accumulate);
    }
  }

  // A tile at the border, with a bias, or in two bytes: summed aside, then stored as far as it
  // exists.
  void through_registers(const Step& step, const Tile& tile, const float* a, const float* b,
                         bool add) const {
    alignas(64) float sums[kMaxTileFloats];
    kernels_.multiply_tile(step.kb, a, b, sums, kernels_.nr, 1.f, false);
    store(tile, sums, kernels_.nr, add, step.last);
  }

  void store(const Tile& tile, const float* sums, int64_t stride, bool add, bool with_bias) const {
    kernels_.store({.source = sums,
                    .source_stride = stride,
                    .rows = tile.rows,
                    .cols = tile.cols,
                    .c = offset(args_.c, args_.c_type, tile.row * args_.c_row_stride + tile.col),
                    .type = args_.c_type,
                    .c_stride = args_.c_row_stride,
                    .alpha = args_.alpha,
                    .accumulate = add,
                    .bias = with_bias ? offset(args_.bias, args_.c_type, tile.col) : nullptr});
  }

  const GemmArgs& args_;
  const Kernels& kernels_;
  const Plan& plan_;
  const Workspace& work_;
  std::atomic<int64_t> next_block_[2] = {0, 0};
};

bool is_empty(const GemmArgs& args) { return args.m <= 0 || args.n <= 0; }

}  // namespace

int64_t gemm_workspace_bytes(const GemmArgs& args) {
  if (is_empty(args)) return 0;
  if (is_skinny(args)) return skinny_workspace_bytes(args);
  const Kernels& kernels = active_kernels();
  Carver carver(nullptr);
  carve(carver, make_plan(args, kernels), kernels);
  return carver.used();
}

void gemm(const GemmArgs& args, void* workspace) {
  if (is_empty(args)) return;
  if (is_skinny(args)) return skinny_gemm(args, workspace);
  const Kernels& kernels = active_kernels();
  const Plan plan = make_plan(args, kernels);
  Carver carver(workspace);
  const Workspace work = carve(carver, plan, kernels);
  Product product(args, kernels, plan, work);
#pragma omp parallel num_threads(plan.threads)
  product.run(omp_get_thread_num(), omp_get_num_threads());
}

}  // namespace snug::kernels::cpu
