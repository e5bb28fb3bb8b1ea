// The kernels of a forward and a backward, in bfloat16.
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/device/cuda.h"
#include "core/ops/linear/matmul.h"
#include "core/ops/linear/stored_weight.h"
#include "kernels/device_timing.h"

namespace snug::bench {
namespace {

namespace host = kernels::cpu;
namespace device = ops::cuda;
constexpr kernels::Scalar kType = kernels::Scalar::BF16;

void measure_rms_norm(DeviceBench& bench, const Sizes& s) {
  const at::Tensor x = bench.numbers({s.rows, s.dim}), y = bench.numbers({s.rows, s.dim});
  const at::Tensor residual = bench.numbers({s.rows, s.dim}), sum = bench.numbers({s.rows, s.dim});
  const at::Tensor weight = bench.numbers({s.dim}), d_weight = bench.zeros({s.dim});
  const at::Tensor rstd = bench.zeros({s.rows});
  kernels::RmsNormForward forward{
      .type = kType, .weight_type = kType, .rows = s.rows, .dim = s.dim};
  forward.x = address(x), forward.y = address(y), forward.weight = address(weight),
  forward.rstd = floats(rstd);
  const auto on_host = [&] { host::rms_norm_forward(forward); };
  const auto on_device = [&] { device::rms_norm_forward(forward); };
  bench.stream("rms_norm_forward", bytes_of({x, y}), on_host, on_device);
  forward.residual = address(residual), forward.sum = address(sum);
  bench.stream("add_rms_norm_forward", bytes_of({x, residual, sum, y}), on_host, on_device);

  kernels::RmsNormBackward backward{
      .type = kType, .weight_type = kType, .rows = s.rows, .dim = s.dim};
  backward.dy = address(x), backward.x = address(sum), backward.weight = address(weight),
  backward.rstd = floats(rstd);
  backward.d_residual = address(residual), backward.dx = address(y),
  backward.dweight.data = floats(d_weight);
  const at::Tensor scratch =
      bench.zeros({device::rms_norm_backward_workspace_bytes(s.dim)}, at::kByte);
  bench.stream(
      "rms_norm_backward", bytes_of({x, sum, residual, y}),
      [&] { host::rms_norm_backward(backward); },
      [&] { device::rms_norm_backward(backward, address(scratch)); });
}

void measure_layer_norm(DeviceBench& bench, const Sizes& s) {
  const at::Tensor x = bench.numbers({s.rows, s.dim}), y = bench.numbers({s.rows, s.dim});
  const at::Tensor dx = bench.numbers({s.rows, s.dim});
  const at::Tensor weight = bench.numbers({s.dim}), bias = bench.numbers({s.dim});
  const at::Tensor d_weight = bench.zeros({s.dim}), d_bias = bench.zeros({s.dim});
  const at::Tensor mean = bench.zeros({s.rows}), rstd = bench.zeros({s.rows});
  kernels::LayerNormForward forward{
      .type = kType, .weight_type = kType, .rows = s.rows, .dim = s.dim};
  forward.x = address(x), forward.y = address(y), forward.weight = address(weight),
  forward.bias = address(bias);
  forward.mean = floats(mean), forward.rstd = floats(rstd);
  bench.stream(
      "layer_norm_forward", bytes_of({x, y}), [&] { host::layer_norm_forward(forward); },
      [&] { device::layer_norm_forward(forward); });

  kernels::LayerNormBackward backward{
      .type = kType, .weight_type = kType, .rows = s.rows, .dim = s.dim};
  backward.dy = address(y), backward.x = address(x), backward.weight = address(weight);
  backward.mean = floats(mean), backward.rstd = floats(rstd), backward.dx = address(dx);
  backward.dweight.data = floats(d_weight), backward.dbias.data = floats(d_bias);
  const at::Tensor scratch =
      bench.zeros({device::layer_norm_backward_workspace_bytes(s.dim, 2)}, at::kByte);
  bench.stream(
      "layer_norm_backward", bytes_of({y, x, dx}), [&] { host::layer_norm_backward(backward); },
      [&] { device::layer_norm_backward(backward, address(scratch)); });
}

void measure_activations(DeviceBench& bench, const Sizes& s) {
  const at::Tensor gate = bench.numbers({s.rows, s.features}),
                   up = bench.numbers({s.rows, s.features});
  const at::Tensor y = bench.numbers({s.rows, s.features}),
                   d_up = bench.numbers({s.rows, s.features});
  const at::Tensor d_gate = bench.numbers({s.rows, s.features});
  kernels::GatedForward gated{.type = kType, .rows = s.rows, .features = s.features};
  gated.gate = address(gate), gated.up = address(up), gated.y = address(y);
  bench.stream(
      "gated_forward", bytes_of({gate, up, y}), [&] { host::gated_forward(gated); },
      [&] { device::gated_forward(gated); });
  kernels::GatedBackward gated_back{.type = kType, .rows = s.rows, .features = s.features};
  gated_back.dy = address(y), gated_back.gate = address(gate), gated_back.up = address(up);
  gated_back.dgate = address(d_gate), gated_back.dup = address(d_up);
  bench.stream(
      "gated_backward", bytes_of({y, gate, up, d_gate, d_up}),
      [&] { host::gated_backward(gated_back); }, [&] { device::gated_backward(gated_back); });

  kernels::ActivationForward gelu{
      .activation = kernels::Activation::GeluTanh, .type = kType, .count = y.numel()};
  gelu.x = address(up), gelu.y = address(y);
  bench.stream(
      "gelu_forward", bytes_of({up, y}), [&] { host::activation_forward(gelu); },
      [&] { device::activation_forward(gelu); });
  kernels::ActivationBackward gelu_back{
      .activation = kernels::Activation::GeluTanh, .type = kType, .count = y.numel()};
  gelu_back.dy = address(y), gelu_back.x = address(up), gelu_back.dx = address(d_up);
  bench.stream(
      "gelu_backward", bytes_of({y, up, d_up}), [&] { host::activation_backward(gelu_back); },
      [&] { device::activation_backward(gelu_back); });

  kernels::Dropout dropout{
      .type = kType, .count = y.numel(), .x = address(up), .out = address(y), .probability = 0.1};
  bench.stream(
      "dropout", bytes_of({up, y}), [&] { host::dropout(dropout); },
      [&] { device::dropout(dropout); });
}

void measure_rope(DeviceBench& bench, const Sizes& s) {
  const int64_t tokens = s.rows / 4;
  const at::Tensor q = bench.numbers({s.rows, s.heads, s.head_dim}),
                   positions = bench.ids(s.rows, tokens);
  const at::Tensor table = bench.numbers({tokens, s.head_dim / 2}, at::kFloat);
  kernels::RopeApply rope{
      .type = kType, .tokens = s.rows, .heads = s.heads, .head_dim = s.head_dim};
  rope.x = address(q), rope.positions = ints(positions), rope.cos = floats(table),
  rope.sin = floats(table);
  rope.max_positions = tokens;
  bench.stream(
      "rope", bytes_of({q, q}), [&] { host::rope_apply(rope); }, [&] { device::rope_apply(rope); });
}

// A bias's gradient.
void measure_sum_of_rows(DeviceBench& bench, const Sizes& s) {
  const at::Tensor x = bench.numbers({s.rows, s.features}), total = bench.zeros({s.features});
  bench.stream("sum_of_rows", bytes_of({x}),
               [&] { ops::sum_of_rows_into(total, x, ops::Into::Overwrite); });
}

// Queries, keys and values of heads that flash attention does not take, as OpenLLaMA 3B's.
void measure_head_widths(DeviceBench& bench, const Sizes& s) {
  if (!bench.on_gpu()) return;
  kernels::HeadWidths args{.type = kType, .from_dim = s.head_dim - 4, .to_dim = s.head_dim};
  std::vector<at::Tensor> arrays;
  for (int i = 0; i < 3; ++i) {
    arrays.push_back(bench.numbers({s.rows, s.heads, args.from_dim}));
    arrays.push_back(bench.numbers({s.rows, s.heads, args.to_dim}));
    args.copies[i] = {.from = address(arrays[arrays.size() - 2]),
                      .from_stride = s.heads * args.from_dim,
                      .to = address(arrays.back()),
                      .tokens = s.rows,
                      .heads = s.heads};
  }
  double bytes = 0;
  for (const at::Tensor& array : arrays) bytes += bytes_of({array});
  bench.stream("change_head_widths", bytes, [&] { device::change_head_widths(args); });
}

// Queries, keys and values on their way into blocks of four documents.
void measure_head_rows(DeviceBench& bench, const Sizes& s) {
  if (!bench.on_gpu()) return;
  constexpr int64_t kDocuments = 4;
  kernels::HeadRows args{.type = kType, .documents = kDocuments, .dim = s.head_dim};
  std::vector<at::Tensor> arrays;
  double bytes = 0;
  for (int i = 0; i < 3; ++i) {
    arrays.push_back(bench.numbers({s.rows, s.heads, s.head_dim}));
    arrays.push_back(bench.zeros({s.rows, s.heads, s.head_dim}, at::kFloat));
    args.arrays[i] = {.from = address(arrays[arrays.size() - 2]),
                      .to = address(arrays.back()),
                      .stride = s.heads * s.head_dim,
                      .heads = s.heads,
                      .rows = s.rows / kDocuments};
    bytes += bytes_of({arrays[arrays.size() - 2]}) + bytes_of({arrays.back()});
  }
  bench.stream("move_head_rows", bytes, [&] { device::move_head_rows(args); });
}

void measure_embedding(DeviceBench& bench, const Sizes& s) {
  const at::Tensor table = bench.numbers({s.vocabulary, s.dim}),
                   gradient = bench.numbers({s.vocabulary, s.dim});
  const at::Tensor rows = bench.numbers({s.rows, s.dim}), ids = bench.ids(s.rows, s.vocabulary);
  kernels::EmbeddingForward forward{
      .type = kType, .tokens = s.rows, .vocabulary = s.vocabulary, .dim = s.dim};
  forward.ids = ints(ids), forward.weight = address(table), forward.out = address(rows);
  bench.stream(
      "embedding_forward", bytes_of({rows, rows}), [&] { host::embedding_forward(forward); },
      [&] { device::embedding_forward(forward); });

  // Ids as they come, and one of them in half of all places, as padding is.
  const at::Tensor padded = ids.clone();
  padded.slice(0, 0, s.rows / 2).fill_(2);
  const at::Tensor scratch =
      bench.zeros({device::embedding_backward_workspace_bytes(s.rows, s.dim)}, at::kByte);
  for (const auto& [name, those] :
       {std::pair{"embedding_backward", ids}, std::pair{"embedding_backward_padded", padded}}) {
    kernels::EmbeddingBackward backward{.type = kType,
                                        .grad_type = kType,
                                        .tokens = s.rows,
                                        .vocabulary = s.vocabulary,
                                        .dim = s.dim};
    backward.ids = ints(those), backward.dy = address(rows), backward.grad = address(gradient);
    bench.stream(
        name, 3 * bytes_of({rows}), [&] { host::embedding_backward(backward); },
        [&] { device::embedding_backward(backward, address(scratch)); });
  }
}

void measure_loss(DeviceBench& bench, const Sizes& s) {
  const at::Tensor logits = bench.numbers({s.logit_rows, s.vocabulary}, at::kFloat);
  const at::Tensor gradient = bench.numbers({s.logit_rows, s.vocabulary}),
                   targets = bench.ids(s.logit_rows, s.vocabulary);
  const at::Tensor totals = bench.zeros({device::kCrossEntropyTotals}, at::kDouble);
  kernels::CrossEntropy loss{.rows = s.logit_rows,
                             .vocabulary = s.vocabulary,
                             .logits = floats(logits),
                             .targets = ints(targets)};
  loss.gradient = address(gradient), loss.gradient_type = kType;
  const at::Tensor scratch =
      bench.zeros({device::cross_entropy_workspace_bytes(s.logit_rows)}, at::kByte);
  bench.stream(
      "cross_entropy", bytes_of({logits, gradient}), [&] { host::cross_entropy(loss); },
      [&] { device::cross_entropy(loss, totals.mutable_data_ptr<double>(), address(scratch)); });
}

void measure_dequantizing(DeviceBench& bench, const Sizes& s) {
  using Format = ops::QuantizedFormat;
  for (const auto& [name, format] : {std::pair{"dequantize_nf4", Format::Nf4},
                                     std::pair{"dequantize_nf4_dq", Format::Nf4DoubleQuant},
                                     std::pair{"dequantize_int8", Format::Int8}}) {
    const ops::StoredWeight weight = ops::quantize(bench.numbers({s.features, s.dim}), format);
    const double written = 2.0 * static_cast<double>(s.features * s.dim);
    bench.stream(name, bytes_of({weight.data}) + written,
                 [&] { ops::dequantize(weight, at::kBFloat16); });
  }
}

}  // namespace

void measure_layers(DeviceBench& bench, const Sizes& s) {
  for (const auto measure :
       {measure_rms_norm, measure_layer_norm, measure_activations, measure_rope,
        measure_sum_of_rows, measure_head_widths, measure_head_rows, measure_embedding,
        measure_loss, measure_dequantizing})
    measure(bench, s);
}

}  // namespace snug::bench
