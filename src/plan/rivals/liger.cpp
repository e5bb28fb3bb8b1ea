// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/liger.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <bit>

#include "plan/rivals/record.h"

namespace snug::plan::rivals::liger {
namespace {

int64_t divided_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

// New tensors of the same memory, which autograd may take as gradients without a copy.
Tensors handed_out(const Tensors& kept) {
  Tensors out;
  for (const at::Tensor& tensor : kept)
    out.push_back(tensor.defined() ? tensor.variable_data() : tensor);
  return out;
}

// Rows whose logits there are at a time.
int64_t rows_of_chunk(int64_t rows, int64_t width, int64_t vocabulary) {
  const int64_t chunks = divided_up(vocabulary, width);
  const auto wanted = static_cast<uint64_t>(divided_up(rows, chunks));
  return std::min(static_cast<int64_t>(std::bit_ceil(wanted)), rows);
}

// What a chunk needs: its logits, which become their gradient, then two products with that.
void run_chunk(int64_t rows, const at::Tensor& x, const at::Tensor& weight, Head kind) {
  const int64_t width = x.size(1), vocabulary = weight.size(0);
  const at::Tensor narrow = weight.to(kind.product);
  const at::Tensor logits = make({rows, vocabulary}, x, kind.product);
  make({rows, width}, x, kind.product);
  if (!weight.requires_grad() || kind.adds_in_place) return;
  const at::Tensor wide = make({vocabulary, width}, x, kind.product).to(at::kFloat);
  if (weight.scalar_type() == at::kFloat) return;
  // A CPU adds float32 to 16 bits by way of float32 copies of both sides.
  const at::Tensor sides[] = {at::empty_like(wide), at::empty_like(wide)};
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, GradientOfNorm kind,
                    int64_t parts) {
  const at::Tensor rows = x.contiguous();
  const at::Tensor scales = make({rows.numel() / rows.size(-1)}, rows, at::kFloat);
  return record(
      make(rows.sizes().vec(), rows), {x, weight}, {rows, weight, scales},
      [=, trains = weight.requires_grad()](const Tensors& kept,
                                           const at::Tensor& gradient) -> Tensors {
        const at::Tensor given = gradient.contiguous();
        at::Tensor of_weight;
        if (trains) {
          const at::Tensor sums = make({parts, kept[1].size(0)}, given, at::kFloat);
          of_weight = at::sum(sums, 0).to(kept[1].scalar_type());
        }
        return {kind == GradientOfNorm::InPlace ? given : at::empty_like(given), of_weight};
      });
}

at::Tensor rotated(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const at::Tensor turned = x.transpose(1, 2).contiguous().transpose(1, 2);
  return record(turned, {x}, {cos, sin}, [](const Tensors&, const at::Tensor& gradient) -> Tensors {
    return {gradient.transpose(1, 2).contiguous().transpose(1, 2)};
  });
}

at::Tensor gated(const at::Tensor& gate, const at::Tensor& up) {
  const at::Tensor a = gate.contiguous(), b = up.contiguous();
  return record(at::empty_like(a), {gate, up}, {a, b},
                [](const Tensors& kept, const at::Tensor&) -> Tensors { return handed_out(kept); });
}

at::Tensor head_and_loss(const at::Tensor& x, const at::Tensor& weight, Head kind) {
  const int64_t rows = rows_of_chunk(x.size(0), x.size(1), weight.size(0));
  const at::Tensor of_x = at::empty_like(x);
  at::Tensor of_weight;
  if (weight.requires_grad()) of_weight = at::empty_like(weight);
  run_chunk(rows, x, weight, kind);
  return record(make({}, x, at::kFloat), {x, weight}, {of_x, of_weight},
                [](const Tensors& kept, const at::Tensor&) -> Tensors { return handed_out(kept); });
}

}  // namespace snug::plan::rivals::liger
