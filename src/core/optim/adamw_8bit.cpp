// SPDX-License-Identifier: Apache-2.0
#include "core/optim/algorithms.h"

#include "core/kernels/optimizers.h"
#include "core/memory/guards.h"
#include "core/ops/device/cuda.h"
#include "core/optim/describe.h"

namespace snug::optim {
namespace {

constexpr int64_t kSmallestQuantized = 4096;

}  // namespace

AdamW8bit::AdamW8bit(const recipe::OptimizerOptions& options, std::vector<NamedTensor> parameters,
                     uint64_t seed, const std::vector<int64_t>& whole_elements)
    : Optimizer(options, std::move(parameters), seed) {
  const memory::CategoryGuard category(memory::Category::Optimizer);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& tensor = parameters_[i].tensor;
    const memory::UnitGuard unit(memory::unit_of(tensor));
    const int64_t whole = whole_elements.empty() ? tensor.numel() : whole_elements[i];
    const auto make_moment = [&] {
      if (whole < kSmallestQuantized) return Moment{zero_state(tensor, at::kFloat), {}};
      constexpr int64_t kBlock = kernels::kQuantizedBlock;
      // Scales are 0, so the initial codes do not matter.
      const auto options = tensor.options().dtype(at::kFloat).requires_grad(false);
      return Moment{zero_state(tensor, at::kByte),
                    at::zeros({(tensor.numel() + kBlock - 1) / kBlock}, options)};
    };
    exp_avg_.push_back(make_moment());
    exp_avg_sq_.push_back(make_moment());
  }
}

void AdamW8bit::append_states(size_t parameter, std::vector<NamedTensor>& all) const {
  const auto append = [&](const char* name, const Moment& moment) {
    const std::string full = parameters_[parameter].name + name;
    all.push_back({full, moment.values});
    if (is_quantized(parameter))
      all.push_back({full + std::string(kBlockStateSuffix), moment.absmax});
  };
  append(".exp_avg", exp_avg_[parameter]);
  append(".exp_avg_sq", exp_avg_sq_[parameter]);
}

void AdamW8bit::update_range(Range range, const StepOptions& step) {
  std::vector<kernels::AdamW8bitTensor> quantized;
  std::vector<kernels::AdamWTensor> small;
  for (size_t i = range.first; i < range.last; ++i) {
    if (is_quantized(i)) {
      kernels::AdamW8bitTensor entry;
      if (!describe(i, entry)) continue;
      entry.exp_avg = ops::write_pointer<uint8_t>(exp_avg_[i].values);
      entry.exp_avg_sq = ops::write_pointer<uint8_t>(exp_avg_sq_[i].values);
      entry.exp_avg_absmax = ops::write_pointer<float>(exp_avg_[i].absmax);
      entry.exp_avg_sq_absmax = ops::write_pointer<float>(exp_avg_sq_[i].absmax);
      quantized.push_back(entry);
    } else {
      kernels::AdamWTensor entry;
      if (!describe(i, entry)) continue;
      entry.exp_avg = ops::write_pointer(exp_avg_[i].values);
      entry.exp_avg_sq = ops::write_pointer(exp_avg_sq_[i].values);
      small.push_back(entry);
    }
  }
  const kernels::AdamWOptions options = adamw_options(options_, step, num_steps_, seed_);
  if (quantized.empty() && small.empty()) return;
  ops::run_on(
      parameters_.front().tensor,
      [&] {
        kernels::cpu::adamw_8bit_step(quantized, options);
        kernels::cpu::adamw_step(small, options);
      },
      [&] {
        ops::cuda::adamw_8bit_step(quantized, options);
        ops::cuda::adamw_step(small, options);
      });
}

}  // namespace snug::optim
