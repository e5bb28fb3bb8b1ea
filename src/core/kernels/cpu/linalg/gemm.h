// Matrix product C = alpha·A·B (+ C) (+ bias) on the CPU, for float32, bfloat16 and float16
// storage. Sums are float32 whatever the storage, and each result is rounded once. Operands are
// converted to float32 while they are packed into cache-sized panels (which a fast product does
// anyhow), so a bfloat16 product costs what a float32 one does; two bfloat16 operands stay what
// they are on processors that multiply them (AVX512-BF16, AMX), at twice to eight times the speed.
// Results are bit-equal from run to run and for any number of threads: k is never split over
// threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/kernels/scalar.h"

namespace snug::kernels {
struct QuantizedMatrix;  // quantized_matrix.h
}

namespace snug::kernels::cpu {

// Element (i, j) lies at data[i * row_stride + j * col_stride], in elements; one of the strides is
// 1, so a transposed operand is the same memory with its strides exchanged.
struct MatrixView {
  const void* data = nullptr;
  Scalar type = Scalar::F32;
  int64_t row_stride = 0, col_stride = 1;
};

struct GemmArgs {
  int64_t m = 0, n = 0, k = 0;
  MatrixView a = {};  // (m, k)
  MatrixView b = {};  // (k, n)
  // In place of b's data: a weight of which b is a view as if it were stored in b's type, the whole
  // of it (row stride cols) or transposed (column stride cols). Its numbers are made of its codes a
  // tile at a time, in the scratch.
  const QuantizedMatrix* quantized_b = nullptr;
  void* c = nullptr;  // (m, n), column stride 1; must not overlap a or b
  Scalar c_type = Scalar::F32;
  int64_t c_row_stride = 0;
  float alpha = 1.f;
  bool accumulate = false;     // C += instead of C =
  const void* bias = nullptr;  // (n), of c_type; added to every row
  int num_threads = 0;         // 0: as many as OpenMP gives
};

// Whether two bfloat16 operands are multiplied as such, faster than float32 ones.
bool multiplies_bf16();

// Bytes of scratch for the packed panels: a few MiB, the same for all large m, n, k.
int64_t gemm_workspace_bytes(const GemmArgs& args);

// `workspace`: 64-byte aligned, at least gemm_workspace_bytes(args).
void gemm(const GemmArgs& args, void* workspace);

}  // namespace snug::kernels::cpu
