// SPDX-License-Identifier: Apache-2.0
#include "core/ops/rope.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "base/error.h"
#include "core/ops/device/cuda.h"
#include "core/ops/device/device.h"

namespace snug::ops {
namespace {

at::Tensor table(std::vector<float>& values, int64_t rows, int64_t columns, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kFloat);
  at::Tensor result = at::empty({rows, columns}, options.device(device));
  if (!device.is_meta()) result.copy_(at::from_blob(values.data(), {rows, columns}, options));
  return result;
}

}  // namespace

RopeTables make_rope_tables(const kernels::cpu::RopeScaling& scaling, int64_t dim,
                            int64_t max_positions, at::Device device) {
  kernels::cpu::RopeTables host = kernels::cpu::build_rope_tables(scaling, dim, max_positions);
  return {table(host.cos, host.max_positions, host.half_dim, device),
          table(host.sin, host.max_positions, host.half_dim, device)};
}

void rotate_in_place(const at::Tensor& x, const at::Tensor& positions, const RopeTables& tables,
                     kernels::RopeDirection direction) {
  if ((x.is_meta() && !calls_cuda(x)) || !tables.cos.defined()) return;
  // Of one head libtorch keeps any stride.
  SNUG_CHECK(x.dim() == 3 && x.stride(2) == 1 && (x.size(1) == 1 || x.stride(1) == x.size(2)),
             "rotation wants heads side by side");
  const kernels::RopeApply args{.type = to_scalar(x.scalar_type()),
                                .tokens = x.size(0),
                                .heads = x.size(1),
                                .head_dim = x.size(2),
                                .rotary_dim = 2 * tables.cos.size(1),
                                .token_stride = x.stride(0),
                                .x = write_pointer(x),
                                .positions = read_pointer<int32_t>(positions),
                                .cos = read_pointer<float>(tables.cos),
                                .sin = read_pointer<float>(tables.sin),
                                .max_positions = tables.cos.size(0),
                                .direction = direction};
  run_on(
      x, [&] { kernels::cpu::rope_apply(args); }, [&] { cuda::rope_apply(args); });
}

}  // namespace snug::ops
