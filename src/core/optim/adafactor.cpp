// SPDX-License-Identifier: Apache-2.0
#include "core/optim/algorithms.h"

#include "base/error.h"
#include "core/kernels/optimizers.h"
#include "core/memory/guards.h"
#include "core/ops/device/cuda.h"
#include "core/optim/describe.h"

namespace snug::optim {

Adafactor::Adafactor(const recipe::OptimizerOptions& options, std::vector<NamedTensor> parameters,
                     uint64_t seed)
    : Optimizer(options, std::move(parameters), seed) {
  const memory::CategoryGuard category(memory::Category::Optimizer);
  for (const auto& [name, tensor] : parameters_) {
    SNUG_CHECK(tensor.dim() == 1 || tensor.dim() == 2, "Adafactor of {} with {} dimensions", name,
               tensor.dim());
    const memory::UnitGuard unit(memory::unit_of(tensor));
    const auto float_options = tensor.options().dtype(at::kFloat).requires_grad(false);
    const auto zeros = [&](at::IntArrayRef shape) { return at::zeros(shape, float_options); };
    const bool matrix = tensor.dim() == 2;
    row_var_.push_back(matrix ? zeros({tensor.size(0), 1}) : at::Tensor());
    col_var_.push_back(matrix ? zeros({1, tensor.size(1)}) : zeros({tensor.size(0)}));
  }
}

void Adafactor::append_states(size_t parameter, std::vector<NamedTensor>& all) const {
  const std::string& name = parameters_[parameter].name;
  const bool matrix = row_var_[parameter].defined();
  if (matrix) all.push_back({name + ".row_var", row_var_[parameter]});
  all.push_back({name + (matrix ? ".col_var" : ".variance"), col_var_[parameter]});
}

void Adafactor::update_range(Range range, const StepOptions& step) {
  const kernels::AdafactorOptions options = {.lr = step.lr,
                                             .weight_decay = options_.weight_decay,
                                             .step = num_steps_,
                                             .grad_scale = static_cast<float>(step.gradient_scale),
                                             .stochastic_rounding = options_.stochastic_rounding,
                                             .seed = seed_};
  for (size_t i = range.first; i < range.last; ++i) {
    const at::Tensor& weight = parameters_[i].tensor;
    if (!weight.grad().defined()) continue;
    const bool matrix = row_var_[i].defined();
    const int64_t rows = matrix ? weight.size(0) : 1;
    const int64_t cols = weight.size(matrix ? 1 : 0);
    int64_t scratch_bytes = kernels::adafactor_workspace_bytes(rows, cols);
    if (ops::kernel_device(weight) == at::kCUDA)
      scratch_bytes += kernels::adafactor_device_sums_bytes(rows);
    ops::with_workspace(weight, scratch_bytes, [&](void* workspace) {
      kernels::AdafactorTensor entry{.rows = rows, .cols = cols};
      if (!describe(i, entry)) return;
      if (matrix) entry.row_var = ops::write_pointer<float>(row_var_[i]);
      entry.col_var = ops::write_pointer<float>(col_var_[i]);
      ops::run_on(
          weight, [&] { kernels::cpu::adafactor_step(entry, options, workspace); },
          [&] { ops::cuda::adafactor_step(entry, options, workspace); });
    });
  }
}

}  // namespace snug::optim
