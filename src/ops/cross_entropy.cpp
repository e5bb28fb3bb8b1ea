// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "kernels/cpu/cross_entropy.h"
#include "ops/device.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/matmul.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows whose float32 logits are about 64 MiB: enough that adding to the weight's gradient, once per
// chunk, is small beside the products; small beside the activations of any real batch.
int64_t rows_per_chunk(int64_t vocabulary) {
  return std::max<int64_t>(16, 64 * kMiB / (vocabulary * 4) / 16 * 16);
}

struct Chunk {
  at::Tensor x;        // (C, D)
  at::Tensor targets;  // (C)
};

// Loss of one chunk; its logits become their own gradient when `need_gradient`.
double chunk_loss(const at::Tensor& logits, const Chunk& chunk, const CrossEntropyOptions& options,
                  bool need_gradient) {
  if (logits.is_meta()) return 0;
  return kernels::cpu::cross_entropy({.rows = logits.size(0),
                                      .vocabulary = logits.size(1),
                                      .logits = logits.mutable_data_ptr<float>(),
                                      .targets = chunk.targets.const_data_ptr<int32_t>(),
                                      .ignore_index = static_cast<int32_t>(options.ignore_index),
                                      .scale = static_cast<float>(options.scale),
                                      .need_gradient = need_gradient})
      .loss_sum;
}

// Adds the chunk's share to the weight's gradient and writes x's gradient into d_x.
void chunk_backward(const at::Tensor& d_logits, const Chunk& chunk, const at::Tensor& weight,
                    const at::Tensor& compute_weight, const at::Tensor& d_x) {
  const at::ScalarType type = scratch_type(chunk.x.scalar_type());
  const at::Tensor d = type == at::kFloat ? d_logits : cast(d_logits, type);
  if (d_x.defined()) matmul_into(d_x, d, compute_weight, Into::Overwrite);
  if (weight.requires_grad()) add_weight_gradient(weight, d, chunk.x);
}

struct LinearCrossEntropyFunction : torch::autograd::Function<LinearCrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& targets, const CrossEntropyOptions& options,
                            bool training) {
    const at::Tensor compute_weight = weight_in(x.scalar_type(), weight);
    const bool d_x_wanted = training && x.requires_grad();
    at::Tensor d_x;
    if (d_x_wanted) d_x = at::empty(x.sizes(), x.options().requires_grad(false));
    double loss = 0;
    const int64_t step = rows_per_chunk(weight.size(0));
    for (int64_t begin = 0; begin < x.size(0); begin += step) {
      const int64_t end = std::min(begin + step, x.size(0));
      const Chunk chunk{x.slice(0, begin, end), targets.slice(0, begin, end)};
      const at::Tensor logits = matmul(chunk.x, compute_weight.t(), at::kFloat);
      loss += chunk_loss(logits, chunk, options, training);
      if (training)
        chunk_backward(logits, chunk, weight, compute_weight,
                       d_x_wanted ? d_x.slice(0, begin, end) : at::Tensor());
    }
    ctx->saved_data["d_x"] = d_x;
    at::Tensor result = at::empty({1}, x.options().dtype(at::kFloat).requires_grad(false));
    if (!result.is_meta()) *result.mutable_data_ptr<float>() = static_cast<float>(loss);
    return result;
  }

  static variable_list backward(AutogradContext* ctx, variable_list /*ones*/) {
    at::Tensor d_x = ctx->saved_data["d_x"].toTensor();
    ctx->saved_data.clear();
    return {d_x, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& targets, const CrossEntropyOptions& options) {
  SNUG_CHECK(x.size(0) == targets.size(0), "{} rows and {} targets", x.size(0), targets.size(0));
  return LinearCrossEntropyFunction::apply(x, weight, targets, options, at::GradMode::is_enabled());
}

}  // namespace snug::ops
