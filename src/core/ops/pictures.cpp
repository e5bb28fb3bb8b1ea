// SPDX-License-Identifier: Apache-2.0
#include "core/ops/pictures.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstring>

#include "base/error.h"
#include "core/kernels/pictures.h"
#include "core/ops/device/cuda.h"
#include "core/ops/device/device.h"
#include "core/ops/embedding.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void write_rows(const at::Tensor& to, const at::Tensor& rows, const at::Tensor& index) {
  const auto* ids = index.const_data_ptr<int32_t>();
  const auto row_bytes = static_cast<size_t>(to.size(1) * to.element_size());
  auto* out = static_cast<char*>(to.mutable_data_ptr());
  const auto* in = static_cast<const char*>(rows.const_data_ptr());
  for (int64_t i = 0; i < index.size(0); ++i) {
    SNUG_CHECK(ids[i] >= 0 && ids[i] < to.size(0), "row {} of {} is to be replaced", ids[i],
               to.size(0));
    std::memcpy(out + static_cast<size_t>(ids[i]) * row_bytes,
                in + static_cast<size_t>(i) * row_bytes, row_bytes);
  }
}

// A copy of `x` with rows[i] as its row index[i].
at::Tensor with_rows(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& index) {
  at::Tensor out = x.clone(at::MemoryFormat::Contiguous);
  put_rows(out, rows, index);
  return out;
}

struct ReplaceRowsFunction : torch::autograd::Function<ReplaceRowsFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& hidden, const at::Tensor& rows,
                            const at::Tensor& index) {
    ctx->saved_data["index"] = index;
    return with_rows(hidden, rows.contiguous(), index);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor d_out = grads[0].contiguous();
    const at::Tensor index = ctx->saved_data["index"].toTensor();
    at::Tensor d_hidden, d_rows;
    if (ctx->needs_input_grad(1)) {
      d_rows = at::empty({index.size(0), d_out.size(1)}, d_out.options());
      look_up(d_rows, index, d_out, {});
    }
    if (ctx->needs_input_grad(0))
      d_hidden =
          with_rows(d_out, at::zeros({index.size(0), d_out.size(1)}, d_out.options()), index);
    return {d_hidden, d_rows, {}};
  }
};

}  // namespace

at::Tensor image_patches(const at::Tensor& pixels, const PatchOptions& options,
                         at::ScalarType type) {
  SNUG_CHECK(pixels.dim() == 4 && pixels.size(3) == 3 && pixels.scalar_type() == at::kByte,
             "pictures are (S, height, width, 3) bytes");
  kernels::ImagePatches args{.type = to_scalar(type),
                             .pictures = pixels.size(0),
                             .height = pixels.size(1),
                             .width = pixels.size(2),
                             .patch_size = options.patch_size,
                             .mean = options.mean,
                             .std = options.std,
                             .pixels = read_pointer<uint8_t>(pixels)};
  at::Tensor out =
      at::empty({args.pictures * args.patches_per_picture(), 3 * args.patch_size * args.patch_size},
                pixels.options().dtype(type));
  args.out = write_pointer(out);
  run_on(
      pixels, [&] { kernels::cpu::image_patches(args); }, [&] { cuda::image_patches(args); });
  return out;
}

at::Tensor replace_rows(const at::Tensor& hidden, const at::Tensor& rows, const at::Tensor& index) {
  SNUG_CHECK(rows.size(0) == index.size(0) && rows.size(1) == hidden.size(1) &&
                 rows.scalar_type() == hidden.scalar_type(),
             "{} rows of {} for {} places in rows of {}", rows.size(0), rows.size(1), index.size(0),
             hidden.size(1));
  return ReplaceRowsFunction::apply(hidden, rows, index);
}

void put_rows(const at::Tensor& to, const at::Tensor& rows, const at::Tensor& index) {
  // libtorch's own copy of rows wants wide indices.
  const at::Tensor wide = kernel_device(to) == at::kCUDA ? index.to(at::kLong) : at::Tensor();
  run_on(
      to, [&] { write_rows(to, rows, index); }, [&] { to.index_copy_(0, wide, rows); });
}

}  // namespace snug::ops
