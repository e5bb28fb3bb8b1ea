// SPDX-License-Identifier: Apache-2.0
#include "engine/adapters/pissa.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "core/nn/parameter.h"

namespace snug::engine {
namespace {

constexpr int kIterations = 6;

at::Tensor orthonormal(const at::Tensor& x) { return std::get<0>(at::linalg_qr(x)); }

// Orthonormal columns (out, columns) that approximately span the leading singular vectors of
// `weight`.
at::Tensor range_of(const at::Tensor& weight, int64_t columns) {
  nn::Parameter draw{.name = "pissa", .shape = {weight.size(1), columns}, .init_scale = 1.0};
  draw.value = at::empty(draw.shape, weight.options());
  draw.initialize(/*seed=*/0, /*deviation=*/1);
  at::Tensor q = orthonormal(weight.matmul(draw.value));
  for (int i = 0; i < kIterations; ++i)
    q = orthonormal(weight.matmul(orthonormal(weight.t().matmul(q))));
  return q;
}

}  // namespace

LowRankStart pissa_start(const at::Tensor& weight, int64_t rank, double scaling) {
  const int64_t smaller = std::min(weight.size(0), weight.size(1));
  const at::Tensor q = range_of(weight, std::min(smaller, 2 * rank + 8));
  const auto [u, s, vh] = at::linalg_svd(q.t().matmul(weight), /*full_matrices=*/false);
  const int64_t kept = std::min(rank, smaller);
  const at::Tensor root = (s.slice(0, 0, kept) / scaling).sqrt();
  LowRankStart start{.a = at::zeros({rank, weight.size(1)}, weight.options()),
                     .b = at::zeros({weight.size(0), rank}, weight.options())};
  start.a.slice(0, 0, kept).copy_(root.unsqueeze(1) * vh.slice(0, 0, kept));
  start.b.slice(1, 0, kept).copy_(q.matmul(u.slice(1, 0, kept)) * root);
  return start;
}

checkpoint::ModuleAdapter relative_to_base(const checkpoint::ModuleAdapter& trained,
                                           const LowRankStart& start) {
  const auto type = trained.a.scalar_type();
  return {.a = at::cat({trained.a.cpu(), start.a.to(type)}, 0),
          .b = at::cat({trained.b.cpu(), -start.b.to(type)}, 1),
          .scaling = trained.scaling};
}

}  // namespace snug::engine
