// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "kernels/cpu/cross_entropy.h"
#include "ops/cuda.h"
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

// Adds the chunks' losses up where they are computed: on the host, or in the device's memory,
// so that nothing waits.
class LossSum {
 public:
  explicit LossSum(const at::Tensor& x) {
    if (kernel_device(x) == at::kCUDA)
      on_device_ = at::zeros({cuda::kCrossEntropyTotals}, x.options().dtype(at::kDouble));
  }

  // The loss of a chunk's logits (C, V). Where `d_logits` is defined, the gradient goes into it;
  // it may be the logits themselves.
  void add(const at::Tensor& logits, const Chunk& chunk, const CrossEntropyOptions& options,
           const at::Tensor& d_logits) {
    const kernels::cpu::CrossEntropy args{
        .rows = logits.size(0),
        .vocabulary = logits.size(1),
        .logits = write_pointer<float>(logits),
        .targets = read_pointer<int32_t>(chunk.targets),
        .ignore_index = static_cast<int32_t>(options.ignore_index),
        .scale = static_cast<float>(options.scale),
        .label_smoothing = static_cast<float>(options.label_smoothing),
        .z_loss = static_cast<float>(options.z_loss),
        .need_gradient = d_logits.defined(),
        .gradient = d_logits.is_same(logits) ? nullptr : write_pointer(d_logits),
        .gradient_type = to_scalar(d_logits.defined() ? d_logits.scalar_type() : at::kFloat)};
    if (on_device_.defined())
      with_workspace(logits, cuda::cross_entropy_workspace_bytes(args.rows), [&](void* scratch) {
        cuda::cross_entropy(args, on_device_.mutable_data_ptr<double>(), scratch);
      });
    else if (!logits.is_meta())
      on_host_ += kernels::cpu::cross_entropy(args).loss_sum;
  }

  // (1), float32.
  at::Tensor total(const at::Tensor& x) const {
    if (on_device_.defined()) return on_device_.slice(0, 0, 1).to(at::kFloat);
    at::Tensor result = at::empty({1}, x.options().dtype(at::kFloat).requires_grad(false));
    if (!result.is_meta()) *result.mutable_data_ptr<float>() = static_cast<float>(on_host_);
    return result;
  }

 private:
  double on_host_ = 0;
  at::Tensor on_device_;
};

// Where the gradient of the logits goes: over them, unless products want another type.
at::Tensor gradient_of(const at::Tensor& logits, const at::Tensor& x) {
  const at::ScalarType type = operand_type(x);
  return type == at::kFloat ? logits : at::empty(logits.sizes(), logits.options().dtype(type));
}

struct LinearCrossEntropyFunction : torch::autograd::Function<LinearCrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Projection& head,
                            const at::Tensor& targets, const CrossEntropyOptions& options,
                            bool training, const std::optional<at::Tensor>& /*trained*/) {
    Projector projector(head, x.scalar_type());
    const bool d_x_wanted = training && x.requires_grad();
    at::Tensor d_x;
    if (d_x_wanted) d_x = at::empty(x.sizes(), x.options().requires_grad(false));
    LossSum loss(x);
    const int64_t step = rows_per_chunk(head.out_features());
    for (int64_t begin = 0; begin < x.size(0); begin += step) {
      const int64_t end = std::min(begin + step, x.size(0));
      const Chunk chunk{x.slice(0, begin, end), targets.slice(0, begin, end)};
      projector.start_at(begin);
      at::Tensor inner;
      const at::Tensor logits = projector.forward(chunk.x, at::kFloat, &inner);
      const at::Tensor d_logits = training ? gradient_of(logits, chunk.x) : at::Tensor();
      loss.add(logits, chunk, options, d_logits);
      if (!training) continue;
      const at::Tensor d_inner = projector.add_gradients(d_logits, chunk.x, inner);
      if (d_x_wanted) projector.input_gradient(d_logits, d_inner, d_x.slice(0, begin, end));
    }
    ctx->saved_data["d_x"] = d_x;
    return loss.total(x);
  }

  static variable_list backward(AutogradContext* ctx, variable_list /*ones*/) {
    at::Tensor d_x = ctx->saved_data["d_x"].toTensor();
    ctx->saved_data.clear();
    return {d_x, {}, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& x, const Projection& head,
                                const at::Tensor& targets, const CrossEntropyOptions& options) {
  SNUG_CHECK(x.size(0) == targets.size(0), "{} rows and {} targets", x.size(0), targets.size(0));
  return LinearCrossEntropyFunction::apply(x, head, targets, options, at::GradMode::is_enabled(),
                                           head.any_trained());
}

}  // namespace snug::ops
