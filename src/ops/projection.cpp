// SPDX-License-Identifier: Apache-2.0
#include "ops/projection.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <vector>

#include "base/bytes.h"
#include "kernels/cpu/dropout.h"
#include "kernels/cpu/random_key.h"
#include "ops/cuda.h"
#include "ops/device.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/matmul.h"

namespace snug::ops {
namespace {

enum class Target { Overwrite, AddTo };

struct Mask {
  double probability;
  uint64_t key;
};

// x with the mask's elements zeroed, written or added to `out`.
void drop_into(const at::Tensor& out, const at::Tensor& x, const Mask& mask, Target target) {
  const kernels::cpu::Dropout args{.type = to_scalar(x.scalar_type()),
                                   .count = x.numel(),
                                   .x = read_pointer(x),
                                   .out = write_pointer(out),
                                   .probability = mask.probability,
                                   .key = mask.key,
                                   .accumulate = target == Target::AddTo};
  run_on(
      x, [&] { kernels::cpu::dropout(args); }, [&] { cuda::dropout(args); });
}

// ‖W + scaling·B·A‖ by rows, a few MiB of rows at a time: the sum never exists whole.
at::Tensor norms_of_sum(const Projection& p, const LowRank* adapter) {
  const int64_t out = p.out_features();
  const int64_t in = p.in_features();
  const auto floats = (p.quantized ? p.quantized->bytes : p.weight)
                          .options()
                          .dtype(at::kFloat)
                          .requires_grad(false);
  const at::Tensor a = adapter != nullptr ? cast(adapter->a.detach(), at::kFloat) : at::Tensor();
  at::Tensor norms = at::empty({out}, floats);
  const int64_t step = std::clamp<int64_t>(4 * kMiB / (4 * in), 1, out);
  for (int64_t begin = 0; begin < out; begin += step) {
    const int64_t end = std::min(begin + step, out);
    const at::Tensor rows = p.quantized
                                ? dequantize_rows(*p.quantized, at::kFloat, begin, end - begin)
                                : cast(p.weight.detach().slice(0, begin, end), at::kFloat);
    if (adapter != nullptr)
      matmul_into(rows, cast(adapter->b.detach().slice(0, begin, end).contiguous(), at::kFloat), a,
                  Into::Accumulate, static_cast<float>(adapter->scaling));
    norms.slice(0, begin, end).copy_(rows.square_().sum(1).sqrt_());
  }
  return norms;
}

}  // namespace

std::optional<at::Tensor> Projection::any_trained() const {
  std::vector<at::Tensor> tensors{weight, bias};
  if (adapter) tensors.insert(tensors.end(), {adapter->a, adapter->b, adapter->magnitude});
  for (const at::Tensor& t : tensors)
    if (t.defined() && t.requires_grad()) return t;
  return std::nullopt;
}

at::Tensor row_norms(const Projection& projection) { return norms_of_sum(projection, nullptr); }

Projector::Projector(const Projection& projection, at::ScalarType compute)
    : projection_(projection) {
  if (!projection.quantized) weight_ = weight_in(compute, projection.weight);
  if (!projection.adapter) return;
  a_ = weight_in(compute, projection.adapter->a);
  b_ = weight_in(compute, projection.adapter->b);
  if (!projection.has_magnitude()) return;
  norms_ = norms_of_sum(projection, &*projection.adapter);
  scale_ = cast(projection.adapter->magnitude.detach(), at::kFloat).div_(norms_).view({1, -1});
}

at::Tensor Projector::dropped(const at::Tensor& x) const {
  const LowRank& adapter = *projection_.adapter;
  if (adapter.dropout == 0) return x;
  at::Tensor result = at::empty_like(x, x.options().requires_grad(false));
  drop_into(result, x, {adapter.dropout, kernels::cpu::mix64(adapter.dropout_key + first_row_)},
            Target::Overwrite);
  return result;
}

at::Tensor Projector::without_bias(const at::Tensor& x, at::ScalarType type,
                                   at::Tensor* inner) const {
  at::Tensor out = at::empty({x.size(0), projection_.out_features()}, x.options().dtype(type));
  if (projection_.quantized)
    product_into(out, x, *projection_.quantized, Into::Overwrite);
  else
    matmul_into(out, x, weight_.t(), Into::Overwrite);
  if (!projection_.adapter) return out;
  const at::Tensor low = matmul(dropped(x), a_.t(), x.scalar_type());
  matmul_into(out, low, b_.t(), Into::Accumulate, static_cast<float>(projection_.adapter->scaling));
  if (inner != nullptr) *inner = low;
  return out;
}

at::Tensor Projector::forward(const at::Tensor& x, at::ScalarType type, at::Tensor* inner) const {
  at::Tensor out = without_bias(x, type, inner);
  if (scale_.defined()) out.mul_(weight_in(type, scale_));
  if (projection_.bias.defined()) out.add_(weight_in(type, projection_.bias));
  return out;
}

at::Tensor Projector::unscaled(const at::Tensor& d_out) const {
  return scale_.defined() ? d_out * weight_in(d_out.scalar_type(), scale_) : d_out;
}

// z is computed again rather than kept: it is as large as the layer's output.
void Projector::add_magnitude_gradient(const at::Tensor& d_out, const at::Tensor& x) const {
  const at::Tensor z = without_bias(x, d_out.scalar_type(), nullptr);
  z.mul_(d_out);
  add_to_gradient(projection_.adapter->magnitude, sum_of_rows(z).div_(norms_));
}

at::Tensor Projector::add_gradients(const at::Tensor& d_out, const at::Tensor& x,
                                    const at::Tensor& inner) const {
  const Projection& p = projection_;
  if (p.bias.defined() && p.bias.requires_grad()) add_bias_gradient(p.bias, d_out);
  if (p.has_magnitude() && p.adapter->magnitude.requires_grad()) add_magnitude_gradient(d_out, x);
  if (p.trains_weight()) add_weight_gradient(p.weight, d_out, x);
  if (!p.adapter) return {};
  const at::Tensor d_z = unscaled(d_out);
  const auto scaling = static_cast<float>(p.adapter->scaling);
  if (p.adapter->b.requires_grad()) {
    const GradientBuffer gradient = gradient_buffer(p.adapter->b);
    matmul_into(gradient.tensor, d_z.t(), inner,
                gradient.fresh ? Into::Overwrite : Into::Accumulate, scaling);
  }
  at::Tensor d_inner = at::empty_like(inner);
  matmul_into(d_inner, d_z, b_, Into::Overwrite, scaling);
  if (p.adapter->a.requires_grad()) add_weight_gradient(p.adapter->a, d_inner, dropped(x));
  return d_inner;
}

void Projector::input_gradient(const at::Tensor& d_out, const at::Tensor& d_inner,
                               const at::Tensor& d_x) const {
  const at::Tensor d_z = unscaled(d_out);
  if (projection_.quantized)
    input_gradient_into(d_x, d_z, *projection_.quantized, Into::Overwrite);
  else
    matmul_into(d_x, d_z, weight_, Into::Overwrite);
  if (!projection_.adapter) return;
  if (projection_.adapter->dropout == 0) {
    matmul_into(d_x, d_inner, a_, Into::Accumulate);
  } else {
    const at::Tensor before_dropout = matmul(d_inner, a_, d_x.scalar_type());
    const LowRank& adapter = *projection_.adapter;
    drop_into(d_x, before_dropout,
              {adapter.dropout, kernels::cpu::mix64(adapter.dropout_key + first_row_)},
              Target::AddTo);
  }
}

}  // namespace snug::ops
