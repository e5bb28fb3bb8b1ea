// What forward and backward of the gated delta rule launch in common.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "core/kernels/cuda/delta_rule/chunks.cuh"
#include "core/kernels/cuda/operators.h"

namespace snug::kernels::cuda::delta {

void check_sizes(const DeltaRuleSizes& sizes);

// The scores of all chunks, then E, the states and the output, as far as `scratch` and `args` have
// room for them.
void launch_scan(const DeltaRuleForward& args, const Scratch& scratch, const char* scores_name,
                 const char* scan_name, cudaStream_t stream);

template <class T>
Inputs<T> inputs_of(const DeltaRuleForward& args, const Scratch& scratch) {
  return {layout_of(args.sizes, args.cu_seqlens),
          static_cast<const T*>(args.q),
          static_cast<const T*>(args.k),
          static_cast<const T*>(args.v),
          args.q_stride,
          args.k_stride,
          args.v_stride,
          args.g,
          args.beta,
          args.skip,
          scratch};
}

// body(the form, as a type; T{})
template <class Body>
void with_form(StateForm form, Scalar type, const Body& body) {
  with_type(type, [&](auto of) {
    if (form == StateForm::Delta)
      body(std::integral_constant<StateForm, StateForm::Delta>{}, of);
    else
      body(std::integral_constant<StateForm, StateForm::Sum>{}, of);
  });
}

// body(most tokens of a chunk, as a type; the form, as a type; T{})
template <class Body>
void with_chunks(const DeltaRuleSizes& sizes, const Body& body) {
  with_form(sizes.form, sizes.type, [&](auto form, auto type) {
    if (most_tokens(sizes) == 64)
      body(std::integral_constant<int, 64>{}, form, type);
    else
      body(std::integral_constant<int, 32>{}, form, type);
  });
}

}  // namespace snug::kernels::cuda::delta
