// SPDX-License-Identifier: Apache-2.0
#include "core/optim/optimizer.h"

#include <fmt/format.h>

#include "base/error.h"
#include "core/memory/disk_file.h"
#include "core/ops/device/device.h"
#include "core/ops/elementwise.h"
#include "core/optim/algorithms.h"
#include "core/optim/describe.h"

namespace snug::optim {

Optimizer::Optimizer(const recipe::OptimizerOptions& options, std::vector<NamedTensor> parameters,
                     uint64_t seed)
    : options_(options),
      parameters_(std::move(parameters)),
      seed_(seed),
      masters_(parameters_.size()),
      master_is_set_(parameters_.size()),
      groups_(parameters_.size()),
      on_disk_(memory::current_tag.disk != nullptr) {
  const memory::CategoryGuard category(memory::Category::Optimizer);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& weight = parameters_[i].tensor;
    if (options_.master_weights && weight.scalar_type() != at::kFloat)
      masters_[i] = zero_state(weight, at::kFloat);
  }
}

void Optimizer::set_num_steps(int64_t steps) {
  num_steps_ = steps;
  master_is_set_.assign(parameters_.size(), steps > 0);
}

at::ScalarType Optimizer::state_type(const at::Tensor& parameter) const {
  if (options_.state_dtype == recipe::StateType::Float32) return at::kFloat;
  if (options_.state_dtype == recipe::StateType::BFloat16) return at::kBFloat16;
  return parameter.scalar_type() == at::kBFloat16 ? at::kBFloat16 : at::kFloat;
}

void Optimizer::copy_to_master(size_t parameter) const {
  if (masters_[parameter].defined() && !master_is_set_[parameter])
    masters_[parameter].copy_(parameters_[parameter].tensor);
}

void Optimizer::update(Range range, const StepOptions& options) {
  SNUG_CHECK(range.first <= range.last && range.last <= parameters_.size(),
             "parameters {} to {} of {}", range.first, range.last, parameters_.size());
  SNUG_CHECK(num_steps_ >= 1, "an update before begin_step()");
  if (!on_disk_) {
    update_part(range, options);
    return;
  }
  // In parts, so that the next is read and the previous written meanwhile.
  read_ahead({range.first, end_of_part(range)});
  while (range.first < range.last) {
    const Range part{range.first, end_of_part(range)};
    range.first = part.last;
    read_ahead({range.first, end_of_part(range)});
    update_part(part, options);
    for (const NamedTensor& state : stored(part)) memory::write_behind(state.tensor);
  }
}

void Optimizer::update_part(Range range, const StepOptions& options) {
  for (size_t i = range.first; i < range.last; ++i) {
    copy_to_master(i);
    master_is_set_[i] = true;
  }
  // In ranges of the same group.
  while (range.first < range.last) {
    const Group& group = groups_[range.first];
    Range alike{range.first, range.first + 1};
    while (alike.last < range.last && groups_[alike.last] == group) ++alike.last;
    StepOptions own = options;
    own.lr *= group.lr_factor;
    update_range(alike, own);
    range.first = alike.last;
  }
}

size_t Optimizer::end_of_part(Range range) const {
  constexpr int64_t kPartBytes = int64_t{64} << 20;
  int64_t bytes = 0;
  size_t end = range.first;
  while (end < range.last && bytes < kPartBytes) {
    for (const NamedTensor& state : stored({end, end + 1}))
      bytes += static_cast<int64_t>(state.tensor.nbytes());
    ++end;
  }
  return end;
}

void Optimizer::read_ahead(Range range) const {
  if (!on_disk_) return;
  for (const NamedTensor& state : stored(range)) memory::read_ahead(state.tensor);
}

std::vector<NamedTensor> Optimizer::stored(Range range) const {
  std::vector<NamedTensor> all;
  for (size_t i = range.first; i < range.last; ++i) {
    append_states(i, all);
    if (masters_[i].defined())
      all.push_back({parameters_[i].name + std::string(kMasterSuffix), masters_[i]});
  }
  return all;
}

std::vector<NamedTensor> Optimizer::states(Range range) const {
  for (size_t i = range.first; i < range.last; ++i) copy_to_master(i);
  return stored(range);
}

std::unique_ptr<Optimizer> make_optimizer(const recipe::OptimizerOptions& options,
                                          std::vector<NamedTensor> parameters, uint64_t seed,
                                          const std::vector<int64_t>& whole_elements) {
  using recipe::OptimizerName;
  switch (options.name.value()) {
    case OptimizerName::AdamW:
      return std::make_unique<AdamW>(options, std::move(parameters), seed);
    case OptimizerName::AdamW8bit:
      return std::make_unique<AdamW8bit>(options, std::move(parameters), seed, whole_elements);
    case OptimizerName::Adafactor:
      return std::make_unique<Adafactor>(options, std::move(parameters), seed);
    default:
      return make_element_wise(options, std::move(parameters), seed);
  }
}

double gradient_sum_of_squares(const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const NamedTensor& parameter : parameters)
    if (parameter.tensor.grad().defined()) gradients.push_back(parameter.tensor.grad());
  return ops::sum_of_squares(gradients);
}

}  // namespace snug::optim
