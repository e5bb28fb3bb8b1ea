// SGD on a stretch of one tensor; see core/kernels/optimizers.h.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/cpu/simd/weights.h"
#include "core/kernels/optimizer_formulas.h"

namespace snug::kernels::cpu {
namespace {

// The gradient after momentum; the buffer is updated.
template <class S, class Lanes>
SNUG_INLINE F with_momentum(const SgdTensor& t, const SgdFactors& f, F g, int64_t i, Lanes lanes,
                            U random) {
  const F before = f.first_step ? F{} : read<S>(t.momentum_buffer, i, lanes);
  const F buffer = sgd_buffer(g, before, f);
  write_rounded<S>(t.momentum_buffer, i, buffer, lanes, f.stochastic, random);
  return sgd_direction(g, buffer, f);
}

template <class P, class G, class S>
void update(const SgdTensor& tensor, const SgdFactors& factors, int64_t begin, int64_t end) {
  const auto t = tensor;
  const auto f = factors;
  sweep(begin, end, [&](int64_t i, auto lanes) {
    F p = read_weight<P>(t, i, lanes);
    F g = sgd_gradient(read<G>(t.grad, i, lanes) * f.grad_scale, p, f);
    const U random = f.stochastic ? random_bits(f.random_key, i) : U{};
    if (f.momentum != 0) g = with_momentum<S>(t, f, g, i, lanes, random >> 16);
    p = sgd_weight(p, g, f);
    write_weight<P>(t, i, p, lanes, f.stochastic, random);
  });
}

}  // namespace

namespace SNUG_ISA {

void sgd_range(const SgdTensor& tensor, const SgdFactors& factors, int64_t begin, int64_t end) {
  with_types_of(tensor, [&](auto p, auto g, auto s) {
    update<decltype(p), decltype(g), decltype(s)>(tensor, factors, begin, end);
  });
}

}  // namespace SNUG_ISA
}  // namespace snug::kernels::cpu
