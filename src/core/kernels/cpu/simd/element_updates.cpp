// Element-wise optimizers on a stretch of one tensor, made from their formulas; see
// core/kernels/optimizers/element_wise.h.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/cpu/simd/math.h"
#include "core/kernels/cpu/simd/weights.h"

namespace snug::kernels::cpu {
namespace {

struct Math {
  SNUG_INLINE F sign_of(F x) {
    const F below = x < 0.f ? broadcast(-1.f) : x;
    return x > 0.f ? broadcast(1.f) : below;
  }
  SNUG_INLINE F square_root(F x) { return cpu::square_root(x); }
};

template <class Formula, class P, class G, class S, bool kStochastic, bool kKeeps>
void update(const ElementTensor<Formula::kStates>& tensor, const ElementFactors<Formula>& factors,
            int64_t begin, int64_t end) {
  const auto t = tensor;
  const auto f = factors;
  sweep(begin, end, [&](int64_t i, auto lanes) {
    const F g = read<G>(t.grad, i, lanes) * f.grad_scale;
    F states[Formula::kStates] = {};
    for (int k = 0; kKeeps && k < Formula::kStates; ++k) states[k] = read<S>(t.states[k], i, lanes);
    F p = read_weight<P>(t, i, lanes);
    Formula::template update<Math>(p, g, states, f);
    const U random = kStochastic ? random_bits(f.random_key, i) : U{};
    for (int k = 0; kKeeps && k < Formula::kStates; ++k)
      write_rounded<S>(t.states[k], i, states[k], lanes, kStochastic,
                       k == 0 ? random >> 16 : more_bits(random));
    write_weight<P>(t, i, p, lanes, kStochastic, random);
  });
}

template <class Formula, bool kKeeps>
SNUG_INLINE void update_typed(const ElementTensor<Formula::kStates>& t,
                              const ElementFactors<Formula>& f, int64_t begin, int64_t end) {
  with_types_of(t, [&](auto p, auto g, auto s) {
    using P = decltype(p);
    using G = decltype(g);
    using S = decltype(s);
    f.stochastic ? update<Formula, P, G, S, true, kKeeps>(t, f, begin, end)
                 : update<Formula, P, G, S, false, kKeeps>(t, f, begin, end);
  });
}

template <class Formula>
SNUG_INLINE void update_any(const ElementTensor<Formula::kStates>& t,
                            const ElementFactors<Formula>& f, int64_t begin, int64_t end) {
  if constexpr (kMayKeepNone<Formula>)
    if (!f.keeps_states) return update_typed<Formula, false>(t, f, begin, end);
  update_typed<Formula, true>(t, f, begin, end);
}

}  // namespace

namespace SNUG_ISA {

#define SNUG_ELEMENT_WISE(Formula)                                                           \
  void Formula##_range(const ElementTensor<Formula::kStates>& tensor,                        \
                       const ElementFactors<Formula>& factors, int64_t begin, int64_t end) { \
    update_any<Formula>(tensor, factors, begin, end);                                        \
  }
#include "core/kernels/optimizers/all.def"
#undef SNUG_ELEMENT_WISE

}  // namespace SNUG_ISA
}  // namespace snug::kernels::cpu
