// SPDX-License-Identifier: Apache-2.0
#include "core/ops/linear/projection.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <vector>

#include "base/bytes.h"
#include "core/dist/group.h"
#include "core/kernels/dropout.h"
#include "core/kernels/random_key.h"
#include "core/ops/device/cuda.h"
#include "core/ops/device/device.h"
#include "core/ops/elementwise.h"
#include "core/ops/linear/linear.h"
#include "core/ops/linear/matmul.h"

namespace snug::ops {
namespace {

enum class Target { Overwrite, AddTo };

struct Mask {
  const LowRank& adapter;
  const Part& part;
  int64_t first_row;
};

// x with the mask's elements zeroed, written or added to `out`.
void drop_into(const at::Tensor& out, const at::Tensor& x, const Mask& mask, Target target) {
  const kernels::MaskKey key = mask.adapter.dropout_key.mixed();
  kernels::Dropout args{.type = to_scalar(x.scalar_type()),
                        .count = x.numel(),
                        .x = read_pointer(x),
                        .out = write_pointer(out),
                        .probability = mask.adapter.dropout,
                        .key = key.own,
                        .pass_key = key.of_pass,
                        .key_mixes = key.mixes,
                        .accumulate = target == Target::AddTo,
                        .places = mask.adapter.rows};
  const bool of_features = mask.part.cut == Cut::Inputs;
  int64_t before = mask.first_row;
  // Whole rows, behind those of the ranks before.
  if (mask.part.cut == Cut::None && mask.part.group != nullptr)
    before += mask.part.group->rank() * x.size(0);
  if (of_features || before > 0 || mask.adapter.rows.stretch > 0) {
    args.columns = x.size(1);
    args.whole_columns = of_features ? mask.part.whole_inputs : args.columns;
    args.first_column = before * args.whole_columns + mask.part.first_input;
  }
  run_on(
      x, [&] { kernels::cpu::dropout(args); }, [&] { cuda::dropout(args); });
}

// The ranks that have terms of a sum over this layer's inputs.
dist::Group* terms_of(const Part& part) { return part.cut == Cut::Inputs ? part.group : nullptr; }

// The ranks that have terms of a sum over the rows of what this layer reads.
dist::Group* rows_of(const Part& part) { return part.cut == Cut::None ? part.group : nullptr; }

// ‖W + scaling·B·A‖ by rows, a few MiB of rows at a time: the sum never exists whole.
at::Tensor norms_of_sum(const Projection& p, const LowRank* adapter) {
  const int64_t out = p.out_features();
  const int64_t in = p.in_features();
  const auto floats = p.weight.data.options().dtype(at::kFloat).requires_grad(false);
  const at::Tensor a = adapter != nullptr ? cast(adapter->a.detach(), at::kFloat) : at::Tensor();
  at::Tensor norms = at::empty({out}, floats);
  const int64_t step = std::clamp<int64_t>(4 * kMiB / (4 * in), 1, out);
  for (int64_t begin = 0; begin < out; begin += step) {
    const int64_t end = std::min(begin + step, out);
    const at::Tensor rows = dequantize_rows(p.weight, at::kFloat, begin, end - begin);
    if (adapter != nullptr)
      matmul_into(rows, cast(adapter->b.detach().slice(0, begin, end).contiguous(), at::kFloat), a,
                  Into::Accumulate, static_cast<float>(adapter->scaling));
    norms.slice(0, begin, end).copy_(rows.square_().sum(1));
  }
  if (dist::Group* group = terms_of(p.part)) group->wait(group->all_reduce(norms));
  return norms.sqrt_();
}

}  // namespace

std::vector<at::Tensor> Projection::trained() const {
  std::vector<at::Tensor> tensors{weight.data, bias};
  if (adapter) tensors.insert(tensors.end(), {adapter->a, adapter->b, adapter->magnitude});
  std::erase_if(tensors, [](const at::Tensor& t) { return !t.defined() || !t.requires_grad(); });
  return tensors;
}

std::optional<at::Tensor> Projection::any_trained() const {
  const std::vector<at::Tensor> tensors = trained();
  return tensors.empty() ? std::nullopt : std::optional(tensors.front());
}

bool need_input(const std::vector<Projection>& projections) {
  return std::ranges::any_of(projections, &Projection::needs_input);
}

std::optional<at::Tensor> any_trained(const std::vector<Projection>& projections) {
  for (const Projection& projection : projections)
    if (auto trained = projection.any_trained()) return trained;
  return std::nullopt;
}

at::Tensor row_norms(const Projection& projection) { return norms_of_sum(projection, nullptr); }

Projector::Projector(const Projection& projection, at::ScalarType compute)
    : projection_(projection), weight_(weight_in(compute, projection.weight)) {
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
  drop_into(result, x, {adapter, projection_.part, first_row_}, Target::Overwrite);
  return result;
}

void Projector::without_bias(const at::Tensor& out, const at::Tensor& x, at::Tensor* inner) const {
  product_into(out, x, weight_, Into::Overwrite);
  if (!projection_.adapter) return;
  const at::Tensor low = matmul(dropped(x), a_.t(), x.scalar_type());
  matmul_into(out, low, b_.t(), Into::Accumulate, static_cast<float>(projection_.adapter->scaling));
  if (inner != nullptr) *inner = low;
}

void Projector::forward_into(const at::Tensor& out, const at::Tensor& x, at::Tensor* inner) const {
  without_bias(out, x, inner);
  const at::ScalarType type = out.scalar_type();
  if (scale_.defined()) out.mul_(weight_in(type, scale_));
  if (projection_.bias.defined()) out.add_(weight_in(type, projection_.bias));
}

at::Tensor Projector::forward(const at::Tensor& x, at::ScalarType type, at::Tensor* inner) const {
  at::Tensor out = at::empty({x.size(0), projection_.out_features()}, x.options().dtype(type));
  forward_into(out, x, inner);
  return out;
}

at::Tensor Projector::unscaled(const at::Tensor& d_out) const {
  return scale_.defined() ? d_out * weight_in(d_out.scalar_type(), scale_) : d_out;
}

// z is computed again rather than kept: it is as large as the layer's output.
void Projector::add_magnitude_gradient(const at::Tensor& d_out, const at::Tensor& x) const {
  const at::Tensor z = at::empty(d_out.sizes(), d_out.options());
  without_bias(z, x, nullptr);
  z.mul_(d_out);
  at::Tensor gradient = at::empty({z.size(1)}, z.options().dtype(at::kFloat));
  sum_of_rows_into(gradient, z, Into::Overwrite);
  gradient.div_(norms_);
  const Part& part = projection_.part;
  if (part.cut != Cut::Outputs && part.group != nullptr)
    part.group->wait(part.group->all_reduce(gradient));
  add_to_gradient(projection_.adapter->magnitude, gradient);
}

at::Tensor Projector::inner_gradient(const at::Tensor& d_out) const {
  if (!projection_.adapter) return {};
  const at::Tensor d_z = unscaled(d_out);
  at::Tensor d_inner = at::empty({d_out.size(0), b_.size(1)}, d_out.options().dtype(b_.dtype()));
  matmul_into(d_inner, d_z, b_, Into::Overwrite, static_cast<float>(projection_.adapter->scaling));
  return d_inner;
}

void Projector::add_own_gradients(const at::Tensor& d_out, const at::Tensor& x,
                                  const at::Tensor& inner, const at::Tensor& d_inner) const {
  const Projection& p = projection_;
  const Part& part = p.part;
  if (p.bias.defined() && p.bias.requires_grad()) add_bias_gradient(p.bias, d_out, rows_of(part));
  if (p.has_magnitude() && p.adapter->magnitude.requires_grad()) add_magnitude_gradient(d_out, x);
  if (p.trains_weight()) add_weight_gradient(p.weight.data, d_out, x, 1.0F, rows_of(part));
  if (!p.adapter) return;
  // What each rank has whole: in a cut layer B sees terms of x·Aᵀ, or A terms of its gradient.
  if (p.adapter->b.requires_grad())
    add_weight_gradient(p.adapter->b, unscaled(d_out), inner,
                        static_cast<float>(p.adapter->scaling),
                        part.cut == Cut::Outputs ? nullptr : part.group);
  if (p.adapter->a.requires_grad())
    add_weight_gradient(p.adapter->a, d_inner, dropped(x), 1.0F,
                        part.cut == Cut::Inputs ? nullptr : part.group);
}

at::Tensor Projector::add_gradients(const at::Tensor& d_out, const at::Tensor& x,
                                    const at::Tensor& inner) const {
  at::Tensor d_inner = inner_gradient(d_out);
  add_own_gradients(d_out, x, inner, d_inner);
  return d_inner;
}

void Projector::input_gradient(const at::Tensor& d_out, const at::Tensor& d_inner,
                               const at::Tensor& d_x, Into into) const {
  const at::Tensor d_z = unscaled(d_out);
  input_gradient_into(d_x, d_z, weight_, into);
  if (!projection_.adapter) return;
  if (projection_.adapter->dropout == 0) {
    matmul_into(d_x, d_inner, a_, Into::Accumulate);
  } else {
    const at::Tensor before_dropout = matmul(d_inner, a_, d_x.scalar_type());
    drop_into(d_x, before_dropout, {*projection_.adapter, projection_.part, first_row_},
              Target::AddTo);
  }
}

}  // namespace snug::ops
