// Lion on a stretch of one tensor; see core/kernels/optimizers.h.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/cpu/simd/weights.h"
#include "core/kernels/optimizer_formulas.h"

namespace snug::kernels::cpu {
namespace {

// 0 stays 0 and NaN stays NaN.
SNUG_INLINE F sign_of(F x) {
  const F below = x < 0.f ? broadcast(-1.f) : x;
  return x > 0.f ? broadcast(1.f) : below;
}

template <class P, class G, class S, bool kStochastic>
void update(const LionTensor& tensor, const LionFactors& factors, int64_t begin, int64_t end) {
  const auto t = tensor;
  const auto f = factors;
  sweep(begin, end, [&](int64_t i, auto lanes) {
    const F g = read<G>(t.grad, i, lanes) * f.grad_scale;
    F m = read<S>(t.exp_avg, i, lanes);
    F p = read_weight<P>(t, i, lanes);
    p = lion_weight(p, sign_of(lion_direction(m, g, f)), f);
    m = lion_average(m, g, f);
    const U random = kStochastic ? random_bits(f.random_key, i) : U{};
    write_rounded<S>(t.exp_avg, i, m, lanes, kStochastic, random >> 16);
    write_weight<P>(t, i, p, lanes, kStochastic, random);
  });
}

template <class P, class G, class S>
void update_either(const LionTensor& t, const LionFactors& f, int64_t begin, int64_t end) {
  if (f.stochastic) return update<P, G, S, true>(t, f, begin, end);
  update<P, G, S, false>(t, f, begin, end);
}

}  // namespace

namespace SNUG_ISA {

void lion_range(const LionTensor& tensor, const LionFactors& factors, int64_t begin, int64_t end) {
  with_types_of(tensor, [&](auto p, auto g, auto s) {
    update_either<decltype(p), decltype(g), decltype(s)>(tensor, factors, begin, end);
  });
}

}  // namespace SNUG_ISA
}  // namespace snug::kernels::cpu
