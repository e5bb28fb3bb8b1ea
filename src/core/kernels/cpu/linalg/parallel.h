// Splitting work over OpenMP threads. Nothing here may change a result: it only says who does what.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace snug::kernels::cpu {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t multiple) { return ceil_div(a, multiple) * multiple; }

// Inside somebody else's parallel region we are one of many already, and stay alone.
inline int resolve_threads(int wanted) {
  if (omp_in_parallel()) return 1;
  return wanted > 0 ? wanted : omp_get_max_threads();
}

struct Range {
  int64_t begin = 0, end = 0;
};

// The share of `part` among `parts` of [0, count), cut at multiples of `grain`.
inline Range share_of(int64_t count, int64_t grain, int part, int parts) {
  const int64_t grains = ceil_div(count, grain);
  return {std::min(count, grains * part / parts * grain),
          std::min(count, grains * (part + 1) / parts * grain)};
}

// Into how many shares work is cut that threads take one by one: a few for each, so that the others
// carry on where one waits for its core.
inline int shares_for(int threads) { return threads > 1 ? 4 * threads : 1; }

// Hands out pieces of a caller's workspace, each on its own cache line. With a null base it
// measures.
class Carver {
 public:
  explicit Carver(void* base) : base_(static_cast<char*>(base)) {}
  template <class T>
  T* take(int64_t count) {
    T* piece = base_ ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    used_ += round_up(count * int64_t(sizeof(T)), 64);
    return piece;
  }
  int64_t used() const { return used_; }

 private:
  char* base_;
  int64_t used_ = 0;
};

}  // namespace snug::kernels::cpu
