// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/fully_shard.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "core/memory/guards.h"
#include "core/memory/placement.h"
#include "plan/rivals/record.h"

namespace snug::plan::rivals {
namespace {

using memory::Category;

at::Tensor make_flat(int64_t elements, at::ScalarType type, Category category) {
  const memory::CategoryGuard guard(category);
  return at::empty({elements}, at::TensorOptions(at::kMeta).dtype(type));
}

// Elements of the rows that each rank has, with padding.
int64_t part_of(const at::Tensor& weight, int64_t ranks) {
  const int64_t rows = weight.size(0);
  return (rows + ranks - 1) / ranks * (weight.numel() / rows);
}

}  // namespace

void FullyShard::add_group(const std::vector<at::Tensor*>& slots, at::ScalarType stored) {
  Group& group = groups_.emplace_back();
  for (at::Tensor* slot : slots) {
    const bool trains = slot->requires_grad();
    const std::vector<int64_t> sizes = slot->sizes().vec();
    const int64_t part = part_of(*slot, options_.ranks), elements = slot->numel();
    const at::ScalarType type = slot->scalar_type(),
                         kept = stored == at::ScalarType::Undefined ? type : stored;
    slot->reset();
    Weight& weight = group.weights.emplace_back();
    weight.padded = part * options_.ranks;
    {
      const memory::HostGuard host(options_.on_host);
      weight.rows = make_flat(part, kept, Category::Parameters);
    }
    const at::Tensor flat = make_flat(weight.padded, type, Category::Parameters);
    memory::vacate(flat);
    weight.whole = flat.narrow(0, 0, elements).view(sizes);
    weight.whole.set_requires_grad(trains);
    *slot = weight.whole;
    group.casts = group.casts || kept != type;
    if (trains) trained_.push_back(weight.rows);
  }
}

void FullyShard::gather(Group& group) {
  if (group.is_whole || group.gathered.defined()) return;
  int64_t bytes = 0;
  for (const Weight& weight : group.weights)
    bytes += weight.padded * static_cast<int64_t>(weight.whole.element_size());
  // Rows of another type, or on the host, are copied first.
  at::Tensor cast;
  if (group.casts || options_.on_host)
    cast = make_flat(bytes / options_.ranks, at::kByte, Category::Communication);
  gathers_.push_back(memory::meta_ledger().serial());
  group.gathered = make_flat(bytes, at::kByte, Category::Communication);
}

void FullyShard::copy_out(Group& group) {
  for (const Weight& weight : group.weights) memory::refill(weight.whole, Category::Parameters);
  group.is_whole = true;
}

void FullyShard::free(Group& group) {
  if (!group.is_whole) return;
  for (const Weight& weight : group.weights) memory::vacate(weight.whole);
  group.is_whole = false;
}

void FullyShard::enter(size_t index) {
  Group& group = groups_[index];
  group.is_done = false;
  if (group.is_whole) return;
  gather(group);
  in_copy_.reset();
  copy_out(group);
  in_copy_ = std::move(group.gathered);
}

at::Tensor FullyShard::entered(size_t index, const at::Tensor& x) {
  return record(x, {x}, {}, [this, index](const Tensors&, const at::Tensor& gradient) -> Tensors {
    end_group(groups_[index]);
    return {gradient};
  });
}

void FullyShard::leave(size_t index, const at::Tensor& output, Stays stays) {
  if (options_.reshards && stays == Stays::Never) free(groups_[index]);
  order_.push_back(index);
  if (output.requires_grad())
    output.register_hook([this, index](const at::Tensor&) { begin_group(index); });
}

void FullyShard::begin_group(size_t index) {
  Group& group = groups_[index];
  gather(group);
  if (!group.is_whole) copy_out(group);
  group.gathered.reset();
  const auto place = std::find(order_.begin(), order_.end(), index);
  if (place != order_.begin()) gather(groups_[*(place - 1)]);
}

void FullyShard::end_group(Group& group) {
  group.is_done = true;
  free(group);
  if (reduces_) reduce(group);
}

void FullyShard::reduce(Group& group) {
  std::vector<const Weight*> trained;
  int64_t elements = 0;
  for (const Weight& weight : group.weights)
    if (weight.whole.grad().defined()) {
      trained.push_back(&weight);
      elements += weight.padded;
    }
  if (trained.empty()) return;
  const at::NoGradGuard no_grad;
  const at::ScalarType type = trained.front()->whole.scalar_type();
  reduced_.reset();
  reduced_ = make_flat(elements, type, Category::Communication);
  for (const Weight* weight : trained) weight->whole.mutable_grad().reset();
  const memory::CategoryGuard category(Category::Gradients);
  const auto make_part = [&](bool on_host) {
    const memory::HostGuard host(on_host);
    return make_flat(elements / options_.ranks, type, Category::Gradients)
        .to(trained.front()->rows.scalar_type());
  };
  at::Tensor from_device;
  if (options_.on_host) from_device = make_part(/*on_host=*/false);
  const at::Tensor part = make_part(options_.on_host);
  int64_t offset = 0;
  for (const Weight* weight : trained) {
    weight->rows.mutable_grad() = part.narrow(0, offset, weight->rows.numel());
    offset += weight->rows.numel();
  }
}

void FullyShard::end_backward() {
  for (Group& group : groups_) {
    if (!group.is_done) end_group(group);
    group.gathered.reset();
  }
  reduced_.reset();
  order_.clear();
}

}  // namespace snug::plan::rivals
