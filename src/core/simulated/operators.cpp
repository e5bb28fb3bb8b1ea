// Any operator of libtorch without an implementation of its own here: its results' shapes come from
// the meta device, their memory from the caching allocator, and what is in them, once the stream
// has come so far, from libtorch's operator for the CPU over the same memory.
// SPDX-License-Identifier: Apache-2.0
#include "core/simulated/operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <string>

#include "core/simulated/streams.h"

namespace snug::simulated {
namespace {

using kernels::simulated::Use;
using Stack = torch::jit::Stack;

const char* kept(const std::string& name) {
  static std::mutex mutex;
  static auto* names = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return names->insert(name).first->c_str();
}

// The value with each of its tensors, and devices, replaced.
template <class Replace>
c10::IValue replaced(const c10::IValue& value, c10::DeviceType device, const Replace& replace) {
  if (value.isTensor())
    return value.toTensor().defined() ? c10::IValue(replace(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(replace(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      list.push_back(tensor && tensor->defined() ? std::optional(replace(*tensor)) : std::nullopt);
    return list;
  }
  if (value.isDevice()) return c10::Device(device);
  if (value.isGenerator()) return {};
  return value;
}

template <class Body>
void for_tensors(const c10::IValue& value, const Body& body) {
  replaced(value, c10::kCPU, [&](const at::Tensor& tensor) {
    body(tensor);
    return tensor;
  });
}

// As what a number becomes beside tensors, where it is one.
at::Tensor with_mark_of(at::Tensor tensor, const at::Tensor& from) {
  if (from.unsafeGetTensorImpl()->is_wrapped_number())
    tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

at::Tensor on_meta(const at::Tensor& tensor) {
  return with_mark_of(
      at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta)),
      tensor);
}

// Arguments that an operator overwrites without reading them.
bool only_writes(const c10::FunctionSchema& schema, const c10::Argument& argument) {
  static const std::set<std::string> fillers = {"aten::fill_", "aten::zero_", "aten::normal_",
                                                "aten::uniform_", "aten::random_"};
  return argument.is_out() || fillers.contains(schema.name());
}

bool writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// Keeps the arguments: if several results are arguments, libtorch gives references to arguments
// that it has dropped.
void call_boxed(const c10::OperatorHandle& op, Stack& stack) {
  const Stack arguments = stack;
  op.callBoxed(&stack);
}

// One call.
struct Call {
  const c10::OperatorHandle& op;
  const c10::FunctionSchema& schema = op.schema();
  std::vector<c10::IValue> arguments;

  template <class Replace>
  Stack with(c10::DeviceType device, const Replace& replace) const {
    Stack stack;
    for (const c10::IValue& value : arguments) stack.push_back(replaced(value, device, replace));
    return stack;
  }

  // The argument that a result is, or none.
  std::optional<size_t> aliased(size_t result) const {
    const c10::AliasInfo* alias = schema.returns()[result].alias_info();
    if (alias == nullptr || !alias->isWrite()) return std::nullopt;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const c10::AliasInfo* own = schema.arguments()[i].alias_info();
      if (own != nullptr && own->beforeSets() == alias->beforeSets()) return i;
    }
    return std::nullopt;
  }

  // A product added to nothing does not read what it could have been added to.
  bool has_beta_of_zero() const {
    const std::optional<int> beta = schema.argumentIndexWithName("beta");
    return beta && arguments[static_cast<size_t>(*beta)].toScalar().toDouble() == 0;
  }

  // What results look like, on meta, or where meta does not know it on a CPU with zeros for values.
  Stack outline() const {
    const Uncounted uncounted;
    // (The fallback of meta tensors is no kernel: it throws.)
    const bool knows = op.hasKernelForDispatchKey(c10::DispatchKey::Meta) ||
                       op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
                       op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
    Stack stack = knows ? with(c10::kMeta, on_meta) : with(c10::kCPU, [](const at::Tensor& t) {
      return with_mark_of(at::zeros(t.sizes(), t.options().device(at::kCPU)), t);
    });
    call_boxed(op, stack);
    return stack;
  }
};

// Those whose results' sizes, or which themselves, are values that the device has to compute first.
bool waits(const c10::FunctionSchema& schema) {
  static const std::set<std::string> known = {"aten::nonzero", "aten::masked_select",
                                              "aten::_unique2", "aten::unique_dim"};
  return known.contains(schema.name()) ||
         std::any_of(schema.returns().begin(), schema.returns().end(), [](const auto& result) {
           return !result.type()->isSubtypeOf(*c10::TensorType::get()) &&
                  !result.type()->isSubtypeOf(*c10::ListType::ofTensors());
         });
}

struct Touches {
  std::vector<at::Tensor> reads, writes;
};

Touches touches_of(const Call& call, const Stack& frozen) {
  Touches touches;
  for (size_t i = 0; i < frozen.size(); ++i) {
    const c10::Argument& argument = call.schema.arguments()[i];
    const auto device_part = [&](std::vector<at::Tensor>& list) {
      std::vector<bool> is_device;
      for_tensors(call.arguments[i],
                  [&](const at::Tensor& t) { is_device.push_back(t.is_cuda()); });
      size_t at = 0;
      for_tensors(frozen[i], [&](const at::Tensor& t) {
        if (is_device[at++]) list.push_back(t);
      });
    };
    const bool reads = !(writes(argument) && only_writes(call.schema, argument)) &&
                       !(argument.name() == "self" && call.has_beta_of_zero());
    if (reads) device_part(touches.reads);
    if (writes(argument)) device_part(touches.writes);
  }
  return touches;
}

// Results that no argument is, as fresh tensors of the device; and the same for the CPU.
struct Results {
  Stack values;
  std::vector<std::vector<at::Tensor>> fresh;  // by result; none for an argument
};

Results make_results(const Call& call, const c10::Device& device) {
  const Stack outline = call.outline();
  Results results;
  for (size_t i = 0; i < outline.size(); ++i) {
    results.fresh.emplace_back();
    if (const auto argument = call.aliased(i)) {
      const at::Tensor& is = call.arguments[*argument].toTensor();
      const at::Tensor& should = outline[i].toTensor();
      if (is.sizes() != should.sizes()) is.resize_(should.sizes());
      results.values.emplace_back(is);
      continue;
    }
    TORCH_CHECK(call.schema.returns()[i].alias_info() == nullptr,
                "simulated GPU: ", call.schema.name(),
                " gives views, which nobody has written for it");
    results.values.push_back(replaced(outline[i], device.type(), [&](const at::Tensor& t) {
      at::Tensor fresh = at::empty_strided(t.sizes(), t.strides(), t.options().device(device));
      results.fresh.back().push_back(on_cpu(fresh));
      return fresh;
    }));
  }
  return results;
}

c10::Device device_of(const Call& call) {
  std::optional<c10::Device> device;
  for (const c10::IValue& value : call.arguments)
    for_tensors(value, [&](const at::Tensor& t) {
      TORCH_CHECK(t.is_cuda() || t.dim() == 0, "simulated GPU: ", call.schema.name(),
                  " has a tensor of ", t.device(), " beside those of a GPU");
      if (t.is_cuda()) device = t.device();
    });
  return device.value_or(c10::Device(c10::kCUDA, c10::cuda::getCurrentCUDAStream().device_index()));
}

void run(const c10::OperatorHandle& op, const Touches& touches, Stack& stack) {
  for (const at::Tensor& tensor : touches.reads) touch_tensor(tensor, Use::Reads);
  for (const at::Tensor& tensor : touches.writes) touch_tensor(tensor, Use::Writes);
  call_boxed(op, stack);
}

void run_and_wait(const Call& call, Stack frozen, const c10::Device& device, Stack* stack) {
  const Touches touches = touches_of(call, frozen);
  enqueue_operator(call.schema.name(), [&] { run(call.op, touches, frozen); });
  wait_for(mark(stream_of(c10::cuda::getCurrentCUDAStream().stream())));
  TORCH_CHECK(fault().empty(), "simulated GPU: ", fault());
  for (const c10::IValue& value : frozen)
    stack->push_back(
        replaced(value, device.type(), [&](const at::Tensor& t) { return t.to(device); }));
}

void any_operator(const c10::OperatorHandle& op, Stack* stack) {
  const size_t count = op.schema().arguments().size();
  Call call{.op = op};
  call.arguments.assign(stack->end() - static_cast<int64_t>(count), stack->end());
  stack->erase(stack->end() - static_cast<int64_t>(count), stack->end());
  const c10::Device device = device_of(call);
  if (waits(call.schema)) return run_and_wait(call, call.with(c10::kCPU, on_cpu), device, stack);
  Results results = make_results(call, device);
  Stack frozen = call.with(c10::kCPU, on_cpu);
  Touches touches = touches_of(call, frozen);
  enqueue_operator(call.schema.name(), [op = call.op, frozen = std::move(frozen), touches,
                                        fresh = results.fresh]() mutable {
    run(op, touches, frozen);
    for (size_t i = 0; i < fresh.size(); ++i) {
      if (fresh[i].empty()) continue;
      size_t at = 0;
      for_tensors(frozen[i], [&](const at::Tensor& value) {
        touch_tensor(fresh[i][at], Use::Writes);
        fresh[i][at++].copy_(value);
      });
    }
  });
  for (c10::IValue& value : results.values) stack->push_back(std::move(value));
}

TORCH_LIBRARY_IMPL(_, CUDA, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&any_operator>());
}

}  // namespace

at::Tensor on_cpu(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) {
    const Uncounted uncounted;
    return with_mark_of(tensor.clone(), tensor);
  }
  void* data = tensor.numel() == 0 ? nullptr : const_cast<void*>(tensor.const_data_ptr());
  return at::from_blob(data, tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU).requires_grad(false));
}

void touch_tensor(const at::Tensor& tensor, Use use) {
  if (tensor.numel() == 0) return;
  // Dimensions from the widest step to the narrowest, without those that repeat elements.
  std::vector<std::pair<int64_t, int64_t>> dims;  // step, size
  for (int64_t d = 0; d < tensor.dim(); ++d)
    if (tensor.size(d) > 1 && tensor.stride(d) != 0)
      dims.emplace_back(tensor.stride(d), tensor.size(d));
  std::sort(dims.rbegin(), dims.rend());
  int64_t run = 1;
  while (!dims.empty() && dims.back().first <= run) {
    run = dims.back().first * (dims.back().second - 1) + run;
    dims.pop_back();
  }
  const int64_t bytes = static_cast<int64_t>(tensor.element_size());
  const auto* data = static_cast<const char*>(tensor.const_data_ptr());
  std::vector<int64_t> at(dims.size(), 0);
  for (;;) {
    int64_t offset = 0;
    for (size_t d = 0; d < dims.size(); ++d) offset += at[d] * dims[d].first;
    kernels::simulated::touch(data + offset * bytes, run * bytes, use);
    size_t d = dims.size();
    while (d > 0 && ++at[d - 1] == dims[d - 1].second) at[--d] = 0;
    if (d == 0) return;
  }
}

void enqueue_operator(const std::string& name, std::function<void()> work) {
  enqueue(stream_of(c10::cuda::getCurrentCUDAStream().stream()), kept(name), std::move(work));
}

}  // namespace snug::simulated
