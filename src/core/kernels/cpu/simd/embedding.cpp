// Sum of the gradients of one id; see core/kernels/embedding.h.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/cpu/simd/loops.h"

namespace snug::kernels::cpu {
namespace SNUG_ISA {

void embedding_backward_row(const EmbeddingBackward& shared, int64_t row, const int32_t* tokens,
                            int64_t num_tokens) {
  with_type(shared.type, [&](auto type) {
    with_type(shared.grad_type, [&](auto grad_type) {
      using T = decltype(type);
      using G = decltype(grad_type);
      const auto args = shared;
      sweep(0, args.dim, [&](int64_t i, auto lanes) {
        F sum = {};
        for (int64_t k = 0; k < num_tokens; ++k) {
          sum += read<T>(args.dy, tokens[k] * args.dim + i, lanes);
        }
        const int64_t at = row * args.dim + i;
        write<G>(args.grad, at, read<G>(args.grad, at, lanes) + sum, lanes);
      });
    });
  });
}

}  // namespace SNUG_ISA
}  // namespace snug::kernels::cpu
