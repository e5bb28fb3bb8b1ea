// What goes over every weight once a step: the gradients' norm and the optimizers.
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/device/cuda.h"
#include "kernels/device_timing.h"

namespace snug::bench {
namespace {

namespace host = kernels::cpu;
namespace device = ops::cuda;

// Weights, gradients and states of one type.
struct Weights {
  at::ScalarType type;
  kernels::Scalar scalar;
  std::string suffix;
};

void measure_norm(DeviceBench& bench, const Sizes& s) {
  const at::Tensor gradient = bench.numbers({s.parameters}), sum = bench.zeros({1}, at::kDouble);
  const kernels::TensorView view{
      .count = s.parameters, .data = address(gradient), .type = kernels::Scalar::BF16};
  const at::Tensor scratch =
      bench.zeros({device::sum_of_squares_workspace_bytes({&view, 1})}, at::kByte);
  bench.stream(
      "sum_of_squares", bytes_of({gradient}),
      [&] {
        host::sum_of_squares({&view, 1});
      },
      [&] {
        device::sum_of_squares({&view, 1}, sum.mutable_data_ptr<double>(), address(scratch));
      });
}

void measure_plain(DeviceBench& bench, const Sizes& s, const Weights& w) {
  const int64_t n = s.parameters;
  const at::Tensor p = bench.numbers({n}, w.type), g = bench.numbers({n}, w.type);
  const at::Tensor m = bench.zeros({n}, w.type), v = bench.zeros({n}, w.type);
  kernels::AdamWTensor adamw{.count = n,
                             .param = address(p),
                             .grad = address(g),
                             .exp_avg = address(m),
                             .exp_avg_sq = address(v)};
  adamw.param_type = adamw.grad_type = adamw.state_type = w.scalar;
  bench.stream(
      "adamw_" + w.suffix, bytes_of({p, p, g, m, m, v, v}),
      [&] {
        host::adamw_step({&adamw, 1}, {});
      },
      [&] {
        device::adamw_step({&adamw, 1}, {});
      });
  kernels::ElementTensor<1> lion{
      .count = n, .param = address(p), .grad = address(g), .states = {address(m)}};
  lion.param_type = lion.grad_type = lion.state_type = w.scalar;
  bench.stream(
      "lion_" + w.suffix, bytes_of({p, p, g, m, m}),
      [&] {
        host::element_step<kernels::Lion>({&lion, 1}, {});
      },
      [&] {
        device::element_step<kernels::Lion>({&lion, 1}, {});
      });
  kernels::ElementTensor<1> sgd{.count = n, .param = address(p), .grad = address(g)};
  sgd.param_type = sgd.grad_type = sgd.state_type = w.scalar;
  bench.stream(
      "sgd_" + w.suffix, bytes_of({p, p, g}),
      [&] {
        host::element_step<kernels::Sgd>({&sgd, 1}, {});
      },
      [&] {
        device::element_step<kernels::Sgd>({&sgd, 1}, {});
      });
}

void measure_8bit(DeviceBench& bench, const Sizes& s, const Weights& w) {
  const int64_t n = s.parameters,
                blocks = (n + kernels::kQuantizedBlock - 1) / kernels::kQuantizedBlock;
  const at::Tensor p = bench.numbers({n}, w.type), g = bench.numbers({n}, w.type);
  const at::Tensor m = bench.zeros({n}, at::kByte), v = bench.zeros({n}, at::kByte);
  const at::Tensor m_scale = bench.zeros({blocks}), v_scale = bench.zeros({blocks});
  kernels::AdamW8bitTensor adamw{.count = n, .param = address(p), .grad = address(g)};
  adamw.exp_avg = m.mutable_data_ptr<uint8_t>(), adamw.exp_avg_sq = v.mutable_data_ptr<uint8_t>();
  adamw.exp_avg_absmax = floats(m_scale), adamw.exp_avg_sq_absmax = floats(v_scale);
  adamw.param_type = adamw.grad_type = w.scalar;
  bench.stream(
      "adamw_8bit_" + w.suffix, bytes_of({p, p, g, m, m, v, v}),
      [&] {
        host::adamw_8bit_step({&adamw, 1}, {});
      },
      [&] {
        device::adamw_8bit_step({&adamw, 1}, {});
      });
}

void measure_adafactor(DeviceBench& bench, const Sizes& s, const Weights& w) {
  const int64_t cols = 512, rows = s.parameters / cols;
  const at::Tensor p = bench.numbers({rows, cols}, w.type), g = bench.numbers({rows, cols}, w.type);
  const at::Tensor by_row = bench.zeros({rows}), by_column = bench.zeros({cols});
  const at::Tensor scratch = bench.zeros(
      {kernels::adafactor_workspace_bytes(rows, cols) + kernels::adafactor_device_sums_bytes(rows)},
      at::kByte);
  kernels::AdafactorTensor adafactor{
      .count = rows * cols, .rows = rows, .cols = cols, .param = address(p), .grad = address(g)};
  adafactor.row_var = floats(by_row), adafactor.col_var = floats(by_column);
  adafactor.param_type = adafactor.grad_type = w.scalar;
  // The sums of squares, the sizes of the update, and the update itself go through the gradient.
  bench.stream(
      "adafactor_" + w.suffix, bytes_of({p, p, g, g, g}),
      [&] { host::adafactor_step(adafactor, {}, address(scratch)); },
      [&] { device::adafactor_step(adafactor, {}, address(scratch)); });
}

}  // namespace

void measure_updates(DeviceBench& bench, const Sizes& s) {
  measure_norm(bench, s);
  for (const Weights& weights : {Weights{at::kBFloat16, kernels::Scalar::BF16, "bf16"},
                                 Weights{at::kFloat, kernels::Scalar::F32, "f32"}})
    for (const auto measure : {measure_plain, measure_8bit, measure_adafactor})
      measure(bench, s, weights);
}

}  // namespace snug::bench
