// SPDX-License-Identifier: Apache-2.0
#include "core/ops/dropout.h"

#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "core/ops/device/cuda.h"
#include "core/ops/device/device.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor drop(const at::Tensor& x, double probability, kernels::MaskKey key,
                int64_t first_element, int64_t whole_columns, const kernels::RowPlaces& rows) {
  at::Tensor out = at::empty_like(x, x.options().requires_grad(false));
  kernels::Dropout args{.type = to_scalar(x.scalar_type()),
                        .count = x.numel(),
                        .x = read_pointer(x),
                        .out = write_pointer(out),
                        .probability = probability,
                        .key = key.own,
                        .pass_key = key.of_pass,
                        .key_mixes = key.mixes};
  if (first_element > 0 || whole_columns > 0 || rows.stretch > 0) {
    args.columns = x.size(-1);
    args.whole_columns = whole_columns > 0 ? whole_columns : args.columns;
    args.first_column = first_element;
    args.places = rows;
  }
  run_on(
      x, [&] { kernels::cpu::dropout(args); }, [&] { cuda::dropout(args); });
  return out;
}

kernels::MaskKey key_of(AutogradContext* ctx) {
  kernels::MaskKey key(static_cast<uint64_t>(ctx->saved_data["key"].toInt()));
  key.of_pass = reinterpret_cast<const uint64_t*>(ctx->saved_data["pass_key"].toInt());
  key.mixes = static_cast<int>(ctx->saved_data["key_mixes"].toInt());
  return key;
}

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, double probability,
                            kernels::MaskKey key, int64_t first_element, int64_t whole_columns,
                            const kernels::RowPlaces& rows) {
    ctx->saved_data["probability"] = probability;
    ctx->saved_data["key"] = static_cast<int64_t>(key.own);
    ctx->saved_data["pass_key"] = reinterpret_cast<int64_t>(key.of_pass);
    ctx->saved_data["key_mixes"] = static_cast<int64_t>(key.mixes);
    ctx->saved_data["first_element"] = first_element;
    ctx->saved_data["whole_columns"] = whole_columns;
    ctx->saved_data["rows"] = std::vector<int64_t>{rows.stretch, rows.first, rows.second};
    return drop(x, probability, key, first_element, whole_columns, rows);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const std::vector<int64_t> rows = ctx->saved_data["rows"].toIntVector();
    return {drop(grads[0].contiguous(), ctx->saved_data["probability"].toDouble(), key_of(ctx),
                 ctx->saved_data["first_element"].toInt(), ctx->saved_data["whole_columns"].toInt(),
                 {.stretch = rows[0], .first = rows[1], .second = rows[2]}),
            {},
            {},
            {},
            {},
            {}};
  }
};

}  // namespace

at::Tensor dropout(const at::Tensor& x, double probability, kernels::MaskKey key,
                   int64_t first_element, int64_t whole_columns, const kernels::RowPlaces& rows) {
  SNUG_CHECK(probability >= 0 && probability < 1, "dropout with a probability of {}", probability);
  if (probability == 0) return x;
  return DropoutFunction::apply(x, probability, key, first_element, whole_columns, rows);
}

void add_noise(const at::Tensor& x, const at::Tensor& noise, double scale, kernels::MaskKey key,
               int64_t first_row, const kernels::RowPlaces& rows) {
  SNUG_CHECK(x.is_contiguous(), "noise on rows that do not lie one after another");
  // Ranks that share rows may have some of no token behind them.
  const int64_t columns = x.size(-1), count = std::min(x.size(0), noise.size(0) - first_row);
  if (count <= 0) return;
  kernels::Dropout args{.type = to_scalar(x.scalar_type()),
                        .count = count * columns,
                        .x = read_pointer(x),
                        .out = write_pointer(x),
                        .key = key.own,
                        .pass_key = key.of_pass,
                        .key_mixes = key.mixes,
                        .columns = columns,
                        .first_column = first_row * columns,
                        .whole_columns = columns,
                        .places = rows,
                        .noise = read_pointer<float>(noise),
                        .noise_scale = static_cast<float>(scale)};
  run_on(
      x, [&] { kernels::cpu::dropout(args); }, [&] { cuda::dropout(args); });
}

}  // namespace snug::ops
