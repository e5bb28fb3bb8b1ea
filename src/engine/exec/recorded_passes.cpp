// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/recorded_passes.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "core/memory/guards.h"
#include "core/memory/ledger.h"
#include "core/ops/device/device.h"
#include "core/ops/elementwise.h"
#include "engine/exec/executor.h"

namespace snug::exec {
namespace {

// A step's first, and those after it: as many as a plan runs. Each keeps its tensors.
constexpr size_t kMostKinds = 2;
// Packed samples seldom have the same lengths twice.
constexpr size_t kMostKnown = 4096;
// Recordings of which that few were launched were in vain, and after so many times there are no
// more.
constexpr int64_t kFewLaunches = 16, kMostInVain = 4;

// The tensors that differ between micro-batches that are alike.
std::vector<at::Tensor> contents(const nn::Batch& batch) {
  std::vector<at::Tensor> tensors;
  nn::for_each_tensor(batch, [&]<class Tensor>(const Tensor& tensor) {
    if constexpr (!std::is_same_v<Tensor, ops::Borders>) tensors.push_back(tensor);
  });
  return tensors;
}

// All that a pass takes from the host, as bytes.
class Key {
 public:
  template <class T>
  void add(const T& number) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  void add(const ops::Borders& borders) {
    add(borders.defined());
    if (!borders.defined()) return;
    for (const int32_t border : *borders.host()) add(border);
    add(borders.size(0));
  }
  void add(const at::Tensor& tensor) {
    add(tensor.defined());
    if (!tensor.defined()) return;
    add(tensor.scalar_type());
    for (const int64_t size : tensor.sizes()) add(size);
    add(tensor.dim());
  }
  std::string bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

std::string key_of(const MicroBatch& micro_batch, bool begins_step) {
  const auto& [batch, pass, number] = micro_batch;
  Key key;
  key.add(begins_step);
  nn::for_each_tensor(batch, [&](const auto& tensor) { key.add(tensor); });
  key.add(batch.max_seqlen);
  key.add(batch.loss_tokens);
  key.add(batch.counted.count);
  key.add(batch.most_tokens);
  key.add(batch.source.has_value());
  if (batch.source) key.add(batch.source->max_seqlen);
  key.add(batch.forks.has_value());
  if (batch.forks) {
    for (const ops::KeyRun& run : batch.forks->runs) {
      key.add(run.first_row);
      key.add(run.count);
      key.add(run.is_again);
    }
    key.add(batch.forks->max_kv_seqlen);
    key.add(batch.forks->num_keys);
  }
  key.add(pass.output);
  key.add(pass.compute);
  key.add(pass.dropout_key.has_value());
  key.add(pass.gradient_scale);
  key.add(pass.objective);
  key.add(pass.rows.stretch);
  key.add(pass.rows.first);
  key.add(pass.rows.second);
  return key.bytes();
}

}  // namespace

RecordedPasses::RecordedPasses(std::vector<nn::Parameter*> parameters)
    : parameters_(std::move(parameters)) {}

RecordedPasses::~RecordedPasses() = default;

bool RecordedPasses::has_gradients() const {
  return std::ranges::any_of(parameters_, [](const nn::Parameter* parameter) {
    return parameter->value.grad().defined();
  });
}

// After one that kept all of its micro-batches, or recorded them.
void RecordedPasses::begin_step() {
  if (empties_) memory::empty_cache(*std::exchange(empties_, std::nullopt));
  if (is_paused_ || in_vain_ >= kMostInVain)
    step_ = Step::Plain;
  else
    step_ = kinds_.empty() ? Step::Keeps : Step::Records;
}

void RecordedPasses::pause(bool is_paused) {
  is_paused_ = is_paused;
  give_up();
}

void RecordedPasses::give_up() {
  step_ = Step::Plain;
  if (has_recorded_) {
    empties_ = kinds_.begin()->second.batch.input_ids.device().type();
    if (counts_.launched - launched_before_ < kFewLaunches) ++in_vain_;
    launched_before_ = counts_.launched;
  }
  has_recorded_ = false;
  kinds_.clear();
  gradients_.clear();
}

at::Tensor RecordedPasses::run(const MicroBatch& micro_batch, const Pass& pass) {
  ++counts_.all;
  const bool begins = !has_gradients();
  if (begins) begin_step();
  const std::string key = key_of(micro_batch, begins);
  try {
    const at::Tensor objective = run_kind(key, micro_batch, pass);
    if (known_.size() < kMostKnown) known_.insert(key);
    return objective;
  } catch (...) {
    give_up();
    throw;
  }
}

at::Tensor RecordedPasses::run_kind(const std::string& key, const MicroBatch& micro_batch,
                                    const Pass& pass) {
  const auto found = kinds_.find(key);
  const bool is_kept = found != kinds_.end();
  if (step_ == Step::Keeps && (is_kept || (known_.contains(key) && kinds_.size() < kMostKinds))) {
    if (!is_kept) keep(key, micro_batch.batch);
    return pass(micro_batch);
  }
  const bool begins = !has_gradients();
  const bool is_recorded =
      step_ == Step::Records && is_kept &&
      (found->second.recording != nullptr || record(found->second, micro_batch, pass));
  if (!is_recorded) {
    give_up();
    return pass(micro_batch);
  }
  Kind& kind = found->second;
  fill(kind, micro_batch);
  kind.recording->launch();
  ++counts_.launched;
  if (begins)
    for (const Gradient& gradient : gradients_)
      gradient.parameter->value.mutable_grad() = gradient.tensor;
  return kind.objective;
}

// Before its pass, which makes what a batch keeps on the device, such as borders of windows.
void RecordedPasses::keep(const std::string& key, const nn::Batch& batch) {
  Kind& kind = kinds_[key];
  kind.batch = batch;
  kind.batch.upload.reset();
}

void RecordedPasses::fill(const Kind& kind, const MicroBatch& micro_batch) {
  const std::vector<at::Tensor> to = contents(kind.batch), from = contents(micro_batch.batch);
  for (size_t i = 0; i < to.size(); ++i)
    if (to[i].defined() && to[i].numel() > 0) ops::copy(to[i], from[i], ops::Wait::No);
  if (!kind.key.defined()) return;
  const memory::CategoryGuard category(memory::Category::Data);
  const uint64_t key = *micro_batch.pass.dropout_key;
  sent_ = std::make_unique<ops::Upload>(kind.key.device());
  ops::copy(kind.key, sent_->tensor(&key, {1}, at::kLong), ops::Wait::No);
}

// False where there is no memory to; a pass that is not recorded may find some.
bool RecordedPasses::record(Kind& kind, const MicroBatch& micro_batch, const Pass& pass) {
  has_recorded_ = true;
  const bool begins = !has_gradients();
  nn::Pass recorded = micro_batch.pass;
  try {
    if (recorded.dropout_key) {
      const memory::CategoryGuard category(memory::Category::Data);
      kind.key = at::empty({1}, kind.batch.input_ids.options().dtype(at::kLong));
      recorded.recorded_key = kind.key;
    }
    kind.recording = std::make_unique<ops::Recording>(kind.batch.input_ids.device(), [&] {
      kind.objective = pass({kind.batch, recorded, micro_batch.number});
    });
  } catch (const OutOfMemory&) {
    if (begins)
      for (nn::Parameter* parameter : parameters_) parameter->value.mutable_grad().reset();
    return false;
  }
  ++counts_.recorded;
  if (begins)
    for (nn::Parameter* parameter : parameters_)
      if (parameter->value.grad().defined())
        gradients_.push_back({parameter, parameter->value.grad()});
  return true;
}

}  // namespace snug::exec
