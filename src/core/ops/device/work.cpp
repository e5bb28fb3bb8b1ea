// SPDX-License-Identifier: Apache-2.0
#include "core/ops/device/work.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "core/memory/placement.h"
#include "core/ops/device/device.h"

namespace snug::ops {
namespace {

thread_local const std::function<void(const Work&)>* counter = nullptr;
// Operators that have been counted may call others, which have not.
thread_local int within_counted = 0;

double bytes_of(const at::Tensor& t) {
  double elements = 1;
  for (int64_t d = 0; d < t.dim(); ++d)
    if (t.stride(d) != 0) elements *= static_cast<double>(t.size(d));  // repeated ones once
  return t.numel() == 0 ? 0 : elements * static_cast<double>(t.element_size());
}

template <class Body>
void for_tensors(const c10::IValue& value, const Body& body) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) body(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) body(tensor);
  }
}

bool gives_views(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.returns(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

bool is_composite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
}

// Whether the operator is one kernel on a GPU. Those made of others are not, but for a few that
// libtorch writes for all devices at once.
bool is_kernel(const c10::OperatorHandle& op) {
  static const std::set<std::string> makers = {"aten::empty.memory_format",
                                               "aten::empty_strided",
                                               "aten::resize_",
                                               "aten::set_.source_Storage_storage_offset",
                                               "aten::set_.source_Tensor",
                                               "aten::set_"};
  static const std::set<std::string> for_all = {"aten::copy_"};
  const c10::FunctionSchema& schema = op.schema();
  if (!schema.name().starts_with("aten::") || gives_views(schema)) return false;
  const std::string full =
      schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
  return for_all.contains(schema.name()) || (!makers.contains(full) && !is_composite(op));
}

bool overwrites(const c10::FunctionSchema& schema, const c10::Argument& argument) {
  static const std::set<std::string> fillers = {"aten::fill_", "aten::zero_", "aten::copy_"};
  return argument.is_out() || fillers.contains(schema.name());
}

double product_flops(const std::vector<at::Tensor>& operands) {
  if (operands.size() < 2) return 0;
  const at::Tensor &a = operands[operands.size() - 2], &b = operands.back();
  if (a.dim() < 2 || b.dim() < 2) return 0;
  return 2.0 * static_cast<double>(a.numel()) * static_cast<double>(b.size(-1));
}

Work work_of_operator(const c10::FunctionSchema& schema, c10::ArrayRef<const c10::IValue> inputs) {
  static const std::set<std::string> products = {"aten::mm", "aten::bmm", "aten::addmm",
                                                 "aten::baddbmm"};
  Work work{.name = schema.name()};
  std::vector<at::Tensor> read;
  bool on_device = false, on_host = false;
  double written_in_place = 0;
  for (size_t i = 0; i < inputs.size() && i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const bool writes = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    for_tensors(inputs[i], [&](const at::Tensor& t) {
      if (t.is_meta()) (memory::is_on_host(t) ? on_host : on_device) = true;
      if (!writes || !overwrites(schema, argument)) read.push_back(t);
      if (writes) written_in_place += bytes_of(t);
    });
  }
  if (!on_device) return {.launches = 0};
  for (const at::Tensor& t : read) work.bytes_read += bytes_of(t);
  work.bytes_written = written_in_place;
  if (products.contains(schema.name())) {
    work.flops = product_flops(read);
    work.type = read.empty() ? at::kFloat : read.back().scalar_type();
  }
  if (on_host)
    work = {.name = "copy between host and device",
            .link_bytes = std::max(work.bytes_read, work.bytes_written)};
  return work;
}

// A key that comes before all others, and that libtorch has for programs that watch operators.
constexpr c10::DispatchKey kWatch = c10::DispatchKey::TESTING_ONLY_GenericMode;

struct Within {
  Within() { ++within_counted; }
  ~Within() { --within_counted; }
};

void watch(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::DispatchKeySet others =
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kWatch);
  if (counter == nullptr || within_counted > 0 || !is_kernel(op))
    return op.redispatchBoxed(others, stack);
  const c10::FunctionSchema& schema = op.schema();
  Work work = work_of_operator(schema, torch::jit::last(*stack, schema.arguments().size()));
  {
    const Within within;
    op.redispatchBoxed(others, stack);
  }
  // What is returned and was no argument is written too.
  if (work.bytes_written == 0 && work.link_bytes == 0)
    for (const c10::IValue& output : torch::jit::last(*stack, schema.returns().size()))
      for_tensors(output, [&](const at::Tensor& t) { work.bytes_written += bytes_of(t); });
  if (work.bytes_read + work.bytes_written + work.link_bytes > 0) note_work(work);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&watch>());
}

}  // namespace

WorkCounter::WorkCounter(std::function<void(const Work&)> note)
    : note_(std::move(note)), sees_operators_(kWatch) {
  SNUG_CHECK(counter == nullptr, "work is counted twice");
  counter = &note_;
}

WorkCounter::~WorkCounter() { counter = nullptr; }

bool counts_work() { return counter != nullptr; }

void note_work(const Work& work) {
  if (work.launches > 0) (*counter)(work);
}

void note_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulates,
                  bool is_scaled) {
  note_work({.name = accumulates || is_scaled ? "aten::addmm" : "aten::mm",
             .bytes_read = bytes_of(a) + bytes_of(b) + (accumulates ? bytes_of(out) : 0),
             .bytes_written = bytes_of(out),
             .flops = product_flops({a, b}),
             .type = a.scalar_type()});
}

void note_selected_rows(const at::Tensor& rows, const at::Tensor& index) {
  note_work({.name = "aten::index_select",
             .bytes_read = bytes_of(rows) + bytes_of(index),
             .bytes_written = bytes_of(rows)});
}

}  // namespace snug::ops
