// How optimizers read and write a weight (through its float32 master where there is one, and
// rounded by chance where that is asked for), and the types that they are made for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels/cpu/simd/random_rounding.h"

namespace snug::kernels::cpu {
namespace {

template <class P, class Tensor, class Lanes>
SNUG_INLINE F read_weight(const Tensor& t, int64_t i, Lanes lanes) {
  return t.master != nullptr ? read<F32>(t.master, i, lanes) : read<P>(t.param, i, lanes);
}

template <class P, class Tensor, class Lanes>
SNUG_INLINE void write_weight(const Tensor& t, int64_t i, F value, Lanes lanes, bool stochastic,
                              U random) {
  if (t.master != nullptr) {
    write<F32>(t.master, i, value, lanes);
    write<P>(t.param, i, value, lanes);
  } else {
    write_rounded<P>(t.param, i, value, lanes, stochastic, random);
  }
}

// body(P{}, G{}, S{}) with the tags of a tensor's weight, gradient and states.
template <class Tensor, class Body>
SNUG_INLINE void with_types_of(const Tensor& t, const Body& body) {
  with_type(t.param_type, [&](auto p) {
    with_type(t.grad_type, [&](auto g) {
      if (t.state_type == Scalar::F32)
        body(p, g, F32{});
      else
        body(p, g, BF16{});
    });
  });
}

}  // namespace
}  // namespace snug::kernels::cpu
