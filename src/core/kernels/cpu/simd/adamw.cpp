// AdamW on a stretch of one tensor; see core/kernels/optimizers.h.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/cpu/simd/math.h"
#include "core/kernels/cpu/simd/weights.h"
#include "core/kernels/optimizer_formulas.h"

namespace snug::kernels::cpu {
namespace {

template <class P, class G, class S, bool kStochastic>
void update(const AdamWTensor& tensor, const AdamWFactors& factors, int64_t begin, int64_t end) {
  const auto t = tensor;
  const auto f = factors;
  sweep(begin, end, [&](int64_t i, auto lanes) {
    const F g = read<G>(t.grad, i, lanes) * f.grad_scale;
    F m = read<S>(t.exp_avg, i, lanes);
    F v = read<S>(t.exp_avg_sq, i, lanes);
    F p = read_weight<P>(t, i, lanes);
    move_moments(m, v, g, f);
    p = adamw_weight(p, m, square_root(v), f);
    U random = {}, more = {};
    if constexpr (kStochastic) {
      random = random_bits(f.random_key, i);
      more = more_bits(random);
    }
    write_rounded<S>(t.exp_avg, i, m, lanes, kStochastic, random >> 16);
    write_rounded<S>(t.exp_avg_sq, i, v, lanes, kStochastic, more);
    write_weight<P>(t, i, p, lanes, kStochastic, random);
  });
}

template <class P, class G, class S>
void update_either(const AdamWTensor& t, const AdamWFactors& f, int64_t begin, int64_t end) {
  if (f.stochastic) return update<P, G, S, true>(t, f, begin, end);
  update<P, G, S, false>(t, f, begin, end);
}

}  // namespace

namespace SNUG_ISA {

void adamw_range(const AdamWTensor& tensor, const AdamWFactors& factors, int64_t begin,
                 int64_t end) {
  with_types_of(tensor, [&](auto p, auto g, auto s) {
    update_either<decltype(p), decltype(g), decltype(s)>(tensor, factors, begin, end);
  });
}

}  // namespace SNUG_ISA
}  // namespace snug::kernels::cpu
