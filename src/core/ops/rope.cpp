// SPDX-License-Identifier: Apache-2.0
#include "core/ops/rope.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "core/ops/device/carried.h"
#include "core/ops/device/cuda.h"
#include "core/ops/device/device.h"

namespace snug::ops {
namespace {

at::Tensor table(std::vector<float>& values, int64_t rows, int64_t columns, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kFloat);
  return at::empty({rows, columns}, options.device(device))
      .copy_(at::from_blob(values.data(), {rows, columns}, options));
}

// libtorch keeps any stride for a single head.
void check_heads(const at::Tensor& x) {
  SNUG_CHECK(x.dim() == 3 && x.stride(2) == 1 && (x.size(1) == 1 || x.stride(1) == x.size(2)),
             "rotation wants heads side by side");
}

// Where the first head's elements that rotate begin.
void* rotated_part(const at::Tensor& x, const RopeTables& tables) {
  SNUG_CHECK(tables.first + 2 * tables.cos.size(1) <= x.size(2),
             "{} elements from {} on of a head of {} cannot rotate", 2 * tables.cos.size(1),
             tables.first, x.size(2));
  return static_cast<char*>(write_pointer(x)) + tables.first * x.element_size();
}

// What a copy is rotated by.
struct Turn {
  at::Tensor positions;
  RopeTables tables;
};

at::Tensor turned(const at::Tensor& x, const Turn& turn, kernels::RopeDirection direction) {
  at::Tensor y = x.clone(at::MemoryFormat::Contiguous);
  rotate_in_place(y, turn.positions, turn.tables, direction);
  return y;
}

struct RotateFunction : torch::autograd::Function<RotateFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                            const Turn& turn) {
    carry(ctx, turn);
    return turned(x, turn, kernels::RopeDirection::Forward);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    return {turned(grads[0], carried<Turn>(ctx), kernels::RopeDirection::Inverse), {}};
  }
};

}  // namespace

RopeTables make_rope_tables(const kernels::cpu::RopeScaling& scaling, int64_t dim,
                            int64_t max_positions, at::Device device) {
  if (device.is_meta()) {  // a plan reads none of the numbers
    kernels::cpu::rope_frequencies(scaling, dim, max_positions);  // which checks the scaling
    const auto empty = [&](int64_t columns) {
      return at::empty({max_positions, columns}, at::TensorOptions(device).dtype(at::kFloat));
    };
    RopeTables tables{.cos = empty(dim / 2), .sin = empty(dim / 2), .query_scale = {}};
    if (kernels::cpu::has_query_scale(scaling, max_positions)) tables.query_scale = empty(1);
    return tables;
  }
  kernels::cpu::RopeTables host = kernels::cpu::build_rope_tables(scaling, dim, max_positions);
  RopeTables tables{.cos = table(host.cos, host.max_positions, host.half_dim, device),
                    .sin = table(host.sin, host.max_positions, host.half_dim, device),
                    .query_scale = {}};
  if (!host.query_scale.empty())
    tables.query_scale = table(host.query_scale, host.max_positions, 1, device);
  return tables;
}

void rotate_in_place(const at::Tensor& x, const at::Tensor& positions, const RopeTables& tables,
                     kernels::RopeDirection direction) {
  rotate_in_place(x, {}, positions, tables, direction);
}

void rotate_in_place(const at::Tensor& q, const at::Tensor& k, const at::Tensor& positions,
                     const RopeTables& tables, kernels::RopeDirection direction) {
  if ((q.is_meta() && !calls_cuda(q)) || !tables.cos.defined()) return;
  check_heads(q);
  kernels::RopeApply args{.type = to_scalar(q.scalar_type()),
                          .tokens = q.size(0),
                          .heads = q.size(1),
                          .head_dim = q.size(2),
                          .rotary_dim = 2 * tables.cos.size(1),
                          .paired = tables.paired,
                          .token_stride = q.stride(0),
                          .x = rotated_part(q, tables),
                          .positions = read_pointer<int32_t>(positions),
                          .cos = read_pointer<float>(tables.cos),
                          .sin = read_pointer<float>(tables.sin),
                          .max_positions = tables.cos.size(0),
                          .direction = direction};
  if (k.defined()) {
    check_heads(k);
    args.more_heads = k.size(1);
    args.more_token_stride = k.stride(0);
    args.more_x = rotated_part(k, tables);
  }
  run_on(
      q, [&] { kernels::cpu::rope_apply(args); }, [&] { cuda::rope_apply(args); });
}

at::Tensor rotated(const at::Tensor& x, const at::Tensor& positions, const RopeTables& tables) {
  return RotateFunction::apply(x, Turn{positions, tables});
}

}  // namespace snug::ops
