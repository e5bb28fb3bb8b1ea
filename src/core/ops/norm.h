// RMSNorm (Zhang & Sennrich 2019): y = weight * x / sqrt(mean(x²) + eps), and LayerNorm (Ba et al.
// 2016): y = weight * (x - mean(x)) / sqrt(var(x) + eps) + bias, per row.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "core/kernels/rms_norm.h"

namespace snug::dist {
class Group;
}

namespace snug::ops {

// `rows_of`: the group that shares the rows, over which the gradients of weight and bias are
// summed; null: this rank has all rows.

// What takes an RMSNorm's output: a product, which keeps it, so that it may be dropped and computed
// again; or something that keeps nothing or changes it.
enum class NormFeeds { Product, Other };

struct RmsNormOptions {
  double eps = 1e-6;
  kernels::NormForm form = kernels::NormForm::Llama;
  NormFeeds feeds = NormFeeds::Product;
  dist::Group* rows_of = nullptr;
};

// x (N, D), weight (D) -> y (N, D) of x's type; without a weight where that is undefined. Saves x
// and one float per row.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, const RmsNormOptions& options);

// x, for the connection past what reads its norm, and the norm. -> (x, y), both (N, D). The
// backward adds x's two gradients up in the norm's own pass.
std::pair<at::Tensor, at::Tensor> rms_norm_beside(const at::Tensor& x, const at::Tensor& weight,
                                                  const RmsNormOptions& options);

// sum = x + residual and its norm in one pass; saves the sum only. -> (sum, y), both (N, D)
std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x, const at::Tensor& residual,
                                               const at::Tensor& weight,
                                               const RmsNormOptions& options);

// rms_norm(silu(gate) * x), both (N, D), as Mamba 2 has it. Saves gate, x and one float per row;
// the backward writes their gradients over the two. The product is computed again.
at::Tensor gated_rms_norm(const at::Tensor& gate, const at::Tensor& x, const at::Tensor& weight,
                          const RmsNormOptions& options);

// rms_norm where each rank of `features_of` has some of the features of every row, `whole` in all:
// x and weight are this rank's. What attention takes, so nothing is computed again.
at::Tensor cut_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, int64_t whole,
                        dist::Group& features_of);

// x (N, D), weight and bias (D) -> y (N, D) of x's type; saves x and two floats per row. Without
// weight and bias where they are undefined.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double eps, dist::Group* rows_of = nullptr);

// As rms_norm_beside. -> (x, y), both (N, D)
std::pair<at::Tensor, at::Tensor> layer_norm_beside(const at::Tensor& x, const at::Tensor& weight,
                                                    const at::Tensor& bias, double eps,
                                                    dist::Group* rows_of = nullptr);

// sum = x + residual and its norm in one pass; saves the sum only. -> (sum, y), both (N, D)
std::pair<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& x, const at::Tensor& residual,
                                                 const at::Tensor& weight, const at::Tensor& bias,
                                                 double eps, dist::Group* rows_of = nullptr);

}  // namespace snug::ops
