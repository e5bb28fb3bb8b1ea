// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/flat_unit.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/accumulate.h>

#include <algorithm>

#include "base/error.h"
#include "core/memory/guards.h"
#include "core/memory/placement.h"
#include "core/ops/device/device.h"
#include "core/ops/elementwise.h"

namespace snug::exec {
namespace {

constexpr int64_t kAlignment = 256;  // elements

int64_t round_up(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

// Elements in memory; for a quantized weight these are bytes.
int64_t stored_elements(const nn::Parameter& parameter) {
  return c10::multiply_integers(parameter.stored_shape());
}

}  // namespace

FlatLayout::FlatLayout(const std::vector<nn::Parameter*>& parameters, int parts)
    : num_parts(parts) {
  int64_t next = 0;
  for (const nn::Parameter* parameter : parameters) {
    offsets.push_back(next);
    next = round_up(next + stored_elements(*parameter), kAlignment);
  }
  part_elements = round_up((next + parts - 1) / parts, kAlignment);
}

FlatUnit::FlatUnit(std::vector<nn::Parameter*> parameters, at::Device device, at::ScalarType type,
                   int part, int num_parts)
    : parameters_(std::move(parameters)),
      layout_(parameters_, num_parts),
      part_index_(part),
      unit_(memory::current_tag.unit) {
  const memory::CategoryGuard category(memory::Category::Parameters);
  const at::ScalarType stored = parameters_.front()->stored_type(type);
  values_ = at::empty({layout_.total_elements()}, at::TensorOptions().device(device).dtype(stored));
  views_ = views_of(values_);
  const int64_t first = part * layout_.part_elements;
  const int64_t last = first + layout_.part_elements;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    nn::Parameter& parameter = *parameters_[i];
    parameter.value = views_[i];
    const int64_t offset = layout_.offsets[i];
    const int64_t begin = std::max(first, offset);
    const int64_t end = std::min(last, offset + stored_elements(parameter));
    if (begin >= end) continue;
    auto piece = std::make_unique<Piece>();
    piece->whole = &parameter;
    piece->begin = begin - offset;
    piece->end = end - offset;
    piece->offset = begin - first;
    piece->parameter.name = parameter.name;
    piece->parameter.shape = {end - begin};
    piece->parameter.trained = parameter.trained;
    piece->parameter.role = parameter.role;
    piece->parameter.value = values_.narrow(0, begin, end - begin);
    pieces_.push_back(std::move(piece));
  }
}

bool FlatUnit::holds(const nn::Parameter& parameter) const {
  return std::ranges::any_of(pieces_,
                             [&](const auto& piece) { return piece->whole == &parameter; });
}

at::Tensor FlatUnit::view_of(const at::Tensor& flat, size_t index) const {
  const nn::Parameter& parameter = *parameters_[index];
  const int64_t count = stored_elements(parameter);
  const at::Tensor range = flat.narrow(0, layout_.offsets[index], count);
  return range.view(parameter.stored_shape()).detach();
}

std::vector<at::Tensor> FlatUnit::views_of(const at::Tensor& flat) const {
  std::vector<at::Tensor> views;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const nn::Parameter& parameter = *parameters_[i];
    views.push_back(view_of(flat, i));
    views.back().set_requires_grad(parameter.trained && !parameter.quantization);
  }
  return views;
}

at::Tensor FlatUnit::own_part_of(const at::Tensor& flat) const {
  return flat.narrow(0, part_index_ * layout_.part_elements, layout_.part_elements);
}

void FlatUnit::keep_part_apart(bool on_device, at::ScalarType computed) {
  const memory::CategoryGuard category(memory::Category::Parameters);
  const memory::UnitGuard unit(unit_);
  kept_apart_ = true;
  memory::vacate(values_);
  part_ = at::empty({layout_.part_elements}, values_.options());
  for (const auto& piece : pieces_)
    piece->parameter.value = part_.narrow(0, piece->offset, piece->end - piece->begin);
  if (!on_device) memory::vacate(part_);
  if (computed == values_.scalar_type() || values_.scalar_type() == at::kByte) return;
  computed_values_ = at::empty(values_.sizes(), values_.options().dtype(computed));
  memory::vacate(computed_values_);
  computed_views_ = views_of(computed_values_);
  show(Form::Computed);
}

void FlatUnit::show(Form form) {
  if (!computed_values_.defined() || form == form_) return;
  form_ = form;
  const std::vector<at::Tensor>& views = form == Form::Kept ? views_ : computed_views_;
  for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i]->value = views[i];
}

void FlatUnit::values_from_pieces() const {
  const at::Tensor own = own_values();
  if (kept_apart_ && !memory::is_vacant(part_)) return ops::copy(own, part_);
  for (const auto& piece : pieces_) {
    const bool is_there = !kept_apart_ && !piece->parameter.home.defined();
    if (!is_there)
      ops::copy(own.narrow(0, piece->offset, piece->end - piece->begin), piece->parameter.kept(),
                ops::Wait::No);
  }
}

void FlatUnit::pieces_from_values() const {
  SNUG_CHECK(form_ == Form::Kept,
             "pieces can only be filled from values of the type they are kept in");
  const at::Tensor own = own_values();
  if (kept_apart_ && !memory::is_vacant(part_)) ops::copy(part_, own);
  for (const auto& piece : pieces_)
    if (piece->parameter.home.defined())
      ops::copy(piece->parameter.home, own.narrow(0, piece->offset, piece->end - piece->begin));
}

const at::Tensor& FlatUnit::provide_gradients() {
  if (!gradients_.defined()) {
    const memory::CategoryGuard category(memory::Category::Gradients);
    const memory::UnitGuard unit(unit_);
    gradients_ = at::empty({layout_.total_elements()}, values_.options());
  }
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (!parameters_[i]->value.grad().defined())
      ops::set_gradient_slot(parameters_[i]->value, view_of(gradients_, i));
  return gradients_;
}

void FlatUnit::complete_gradients() const {
  for (const nn::Parameter* parameter : parameters_) {
    const ops::GradientBuffer buffer = ops::gradient_buffer(parameter->value);
    if (buffer.fresh) ops::fill(buffer.tensor, 0);
  }
}

at::Tensor FlatUnit::take_gradients() {
  for (nn::Parameter* parameter : parameters_) {
    parameter->value.mutable_grad().reset();
    ops::set_gradient_slot(parameter->value, {});
  }
  return std::exchange(gradients_, {});
}

void FlatUnit::give_to_pieces(const at::Tensor& reduced) const {
  for (const auto& piece : pieces_)
    piece->parameter.value.mutable_grad() =
        reduced.narrow(0, piece->offset, piece->end - piece->begin);
}

at::Tensor FlatUnit::new_part(memory::Category category) const {
  const memory::CategoryGuard tag(category);
  const memory::UnitGuard unit(unit_);
  return at::empty({layout_.part_elements}, values_.options());
}

bool FlatUnit::pieces_have_gradients() const {
  return std::ranges::any_of(
      pieces_, [](const auto& piece) { return piece->parameter.value.grad().defined(); });
}

bool FlatUnit::has_gradients() const {
  return pieces_have_gradients() || std::ranges::any_of(parameters_, [](const auto* parameter) {
           return parameter->value.grad().defined();
         });
}

void FlatUnit::drop_gradients() {
  take_gradients();
  for (const auto& piece : pieces_) piece->parameter.value.mutable_grad().reset();
}

}  // namespace snug::exec
