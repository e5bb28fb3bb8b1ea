// SPDX-License-Identifier: Apache-2.0
#include "core/ops/linear/stored_weight.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/error.h"
#include "core/kernels/cpu/linalg/gemm.h"
#include "core/memory/guards.h"
#include "core/ops/device/cuda.h"
#include "core/ops/device/device.h"
#include "core/ops/elementwise.h"
#include "core/ops/linear/row_room.h"

namespace snug::ops {
namespace {

namespace cpu = kernels::cpu;

void check(const StoredWeight& weight) {
  if (!weight.format) return;
  const int64_t wanted = kernels::quantized_bytes(*weight.format, weight.rows, weight.cols);
  SNUG_CHECK(weight.data.scalar_type() == at::kByte && weight.data.numel() == wanted &&
                 weight.data.is_contiguous(),
             "a {} weight of {}x{} has {} bytes of {}, expected {} contiguous ones of Byte",
             kernels::traits(*weight.format).name, weight.rows, weight.cols, weight.data.numel(),
             c10::toString(weight.data.scalar_type()), wanted);
}

kernels::QuantizedMatrix matrix(const StoredWeight& weight) {
  return kernels::quantized_matrix(*weight.format, weight.rows, weight.cols,
                                   read_pointer(weight.data));
}

cpu::MatrixView quantized_operand(const at::Tensor& t) {
  SNUG_CHECK(t.dim() == 2 && (t.stride(0) == 1 || t.stride(1) == 1 || t.numel() == 0),
             "operand of {} dimensions has no unit stride", t.dim());
  return {read_pointer(t), to_scalar(t.scalar_type()), t.stride(0), t.stride(1)};
}

enum class Side { Transposed, AsStored };

void cpu_product(const at::Tensor& out, const at::Tensor& a, const StoredWeight& weight, Side side,
                 Into into, float alpha) {
  const kernels::QuantizedMatrix stored = matrix(weight);
  const bool transposed = side == Side::Transposed;
  const cpu::GemmArgs args{.m = out.size(0),
                           .n = out.size(1),
                           .k = a.size(1),
                           .a = quantized_operand(a),
                           .b = {.type = to_scalar(a.scalar_type()),
                                 .row_stride = transposed ? 1 : weight.cols,
                                 .col_stride = transposed ? weight.cols : 1},
                           .quantized_b = &stored,
                           .c = write_pointer(out),
                           .c_type = to_scalar(out.scalar_type()),
                           .c_row_stride = out.stride(0),
                           .alpha = alpha,
                           .accumulate = into == Into::Accumulate};
  with_workspace(out, product_workspace_bytes(args),
                 [&](void* scratch) { cpu::gemm(args, scratch); });
}

// Large enough for cuBLAS to be fast, small beside any model.
constexpr int64_t kChunkBytes = int64_t{16} << 20;

int64_t chunk_rows(const StoredWeight& weight, const at::Tensor& like) {
  const int64_t row_bytes = std::max<int64_t>(1, weight.cols * like.element_size());
  return std::clamp<int64_t>(kChunkBytes / row_bytes, 1, std::max<int64_t>(1, weight.rows));
}

void dequantize_into(const at::Tensor& out, const StoredWeight& weight, int64_t first_row) {
  const int64_t begin = first_row * weight.cols;
  const kernels::Scalar type = to_scalar(out.scalar_type());
  run_on(
      out,
      [&] { cpu::dequantize(matrix(weight), begin, out.numel(), out.mutable_data_ptr(), type); },
      [&] {
        cuda::dequantize({.format = *weight.format,
                          .rows = weight.rows,
                          .cols = weight.cols,
                          .bytes = read_pointer<uint8_t>(weight.data),
                          .begin = begin,
                          .count = out.numel(),
                          .out = write_pointer(out),
                          .type = type});
      });
}

// body(numbers of the rows, first row, their count)
template <class Body>
void for_each_chunk(const StoredWeight& weight, const at::Tensor& like, const Body& body) {
  const int64_t step = chunk_rows(weight, like);
  const at::Tensor scratch = at::empty({step, weight.cols}, like.options());
  for (int64_t row = 0; row < weight.rows; row += step) {
    const int64_t count = std::min(step, weight.rows - row);
    const at::Tensor numbers = scratch.narrow(0, 0, count);
    dequantize_into(numbers, weight, row);
    body(numbers, row, count);
  }
}

}  // namespace

StoredWeight weight_in(at::ScalarType type, const StoredWeight& weight) {
  if (weight.format || weight.data.scalar_type() == type) return weight;
  if (weight.kept_cast == nullptr) return cast(weight.data, type);
  at::Tensor& kept = *weight.kept_cast;
  if (!kept.defined() || kept.scalar_type() != type) {
    const memory::CategoryGuard category(memory::Category::Parameters);
    kept = cast(weight.data.detach(), type);
  }
  return kept;
}

void product_into(const at::Tensor& out, const at::Tensor& x, const StoredWeight& weight, Into into,
                  float alpha) {
  check(weight);
  SNUG_CHECK(x.size(1) == weight.cols && out.size(0) == x.size(0) && out.size(1) == weight.rows,
             "product of {}x{} and a transposed {}x{} into {}x{}", x.size(0), x.size(1),
             weight.rows, weight.cols, out.size(0), out.size(1));
  if (!weight.format) {
    matmul_into(out, x, weight.data.t(), into, alpha);
    return;
  }
  if (kernel_device(out) != at::kCUDA) {
    cpu_product(out, x, weight, Side::Transposed, into, alpha);
    return;
  }
  for_each_chunk(weight, x, [&](const at::Tensor& numbers, int64_t row, int64_t count) {
    matmul_into(out.narrow(1, row, count), x, numbers.t(), into, alpha);
  });
}

void input_gradient_into(const at::Tensor& d_x, const at::Tensor& d_out, const StoredWeight& weight,
                         Into into, float alpha) {
  check(weight);
  SNUG_CHECK(
      d_out.size(1) == weight.rows && d_x.size(0) == d_out.size(0) && d_x.size(1) == weight.cols,
      "product of {}x{} and {}x{} into {}x{}", d_out.size(0), d_out.size(1), weight.rows,
      weight.cols, d_x.size(0), d_x.size(1));
  if (!weight.format) {
    matmul_into(d_x, d_out, weight.data, into, alpha);
    return;
  }
  if (kernel_device(d_x) != at::kCUDA) {
    cpu_product(d_x, d_out, weight, Side::AsStored, into, alpha);
    return;
  }
  for_each_chunk(weight, d_out, [&](const at::Tensor& numbers, int64_t row, int64_t count) {
    matmul_into(d_x, d_out.narrow(1, row, count), numbers, row == 0 ? into : Into::Accumulate,
                alpha);
  });
}

at::Tensor dequantize_rows(const StoredWeight& weight, at::ScalarType type, int64_t first,
                           int64_t count) {
  check(weight);
  SNUG_CHECK(first >= 0 && count >= 0 && first + count <= weight.rows,
             "rows {} to {} of a weight of {}", first, first + count, weight.rows);
  if (!weight.format) return cast(weight.data.detach().slice(0, first, first + count), type);
  at::Tensor out = at::empty({count, weight.cols}, weight.data.options().dtype(type));
  dequantize_into(out, weight, first);
  return out;
}

at::Tensor dequantize(const StoredWeight& weight, at::ScalarType type) {
  return dequantize_rows(weight, type, 0, weight.rows);
}

StoredWeight quantize(const at::Tensor& weight, QuantizedFormat format) {
  SNUG_CHECK(weight.dim() == 2 && weight.is_contiguous(), "a weight of {} dimensions to quantize",
             weight.dim());
  if (weight.is_cuda()) {
    StoredWeight result = quantize(weight.cpu(), format);
    result.data = result.data.to(weight.device());
    return result;
  }
  const int64_t rows = weight.size(0), cols = weight.size(1);
  StoredWeight result(at::empty({kernels::quantized_bytes(format, rows, cols)},
                                weight.options().dtype(at::kByte).requires_grad(false)),
                      format, rows, cols);
  if (weight.is_meta()) return result;
  cpu::Quantizer quantizer(format, rows, cols, result.data.mutable_data_ptr());
  quantizer.add(weight.const_data_ptr(), to_scalar(weight.scalar_type()), weight.numel());
  quantizer.finish();
  return result;
}

}  // namespace snug::ops
