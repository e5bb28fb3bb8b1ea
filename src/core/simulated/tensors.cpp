// Operators that make tensors, give views of them, or move them between host and device, which do
// as libtorch's do for CUDA: the same memory is taken in the same order.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <torch/library.h>

#include "core/simulated/operators.h"
#include "core/simulated/streams.h"

namespace snug::simulated {
namespace {

using kernels::simulated::Use;

c10::Allocator* allocator() {
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  return c10::cuda::CUDACachingAllocator::get();
}

constexpr c10::DispatchKeySet kCuda(c10::DispatchKey::CUDA);

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type,
                 std::optional<at::Layout> /*layout*/, std::optional<at::Device> device,
                 std::optional<bool> /*pinned*/, std::optional<at::MemoryFormat> format) {
  c10::Allocator* const memory = allocator();
  const c10::cuda::OptionalCUDAGuard guard(device);
  return at::detail::empty_generic(sizes, memory, kCuda, c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::optional<at::ScalarType> type, std::optional<at::Layout> /*layout*/,
                         std::optional<at::Device> device, std::optional<bool> /*pinned*/) {
  c10::Allocator* const memory = allocator();
  const c10::cuda::OptionalCUDAGuard guard(device);
  return at::detail::empty_strided_generic(sizes, strides, memory, kCuda,
                                           c10::dtype_or_default(type));
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef sizes,
                         std::optional<at::MemoryFormat> /*format*/) {
  c10::StorageImpl* storage = self.storage().unsafeGetStorageImpl();
  const size_t bytes =
      at::detail::computeStorageNbytesContiguous(sizes, self.element_size(), self.storage_offset());
  if (bytes > storage->nbytes()) {
    storage->set_data_ptr_noswap(allocator()->allocate(bytes));
    storage->set_nbytes(bytes);
  }
  self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage storage, int64_t offset,
                        at::IntArrayRef sizes, at::IntArrayRef strides) {
  at::TensorImpl* tensor = self.unsafeGetTensorImpl();
  TORCH_CHECK(storage.device() == self.device(), "a storage of another device");
  tensor->set_storage_keep_dtype(std::move(storage));
  tensor->set_sizes_and_strides(sizes, strides, offset);
  return self;
}

// ---- Copies

// Within the device: a kernel.
void copy_on_device(const at::Tensor& to, const at::Tensor& from) {
  enqueue_operator("aten::copy_", [to = on_cpu(to), from = on_cpu(from)]() mutable {
    const bool in_one_piece = from.is_contiguous() && to.is_contiguous() &&
                              from.numel() == to.numel() && from.dtype() == to.dtype();
    if (in_one_piece) {
      kernels::simulated::move(to.const_data_ptr(), from.const_data_ptr(),
                               static_cast<int64_t>(from.nbytes()));
    } else {
      touch_tensor(from, Use::Passes);
      touch_tensor(to, Use::Writes);
    }
    to.copy_(from);
  });
}

void copy_bytes(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
  C10_CUDA_CHECK(cudaMemcpyAsync(to.mutable_data_ptr(), from.const_data_ptr(), to.nbytes(),
                                 cudaMemcpyDefault, stream));
  if (!non_blocking) C10_CUDA_CHECK(cudaStreamSynchronize(stream));
}

// Through memory in one piece where one of the two is not, or their types differ: of the device
// where the copy goes there or may not wait.
void copy_between(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  const bool same_type = to.scalar_type() == from.scalar_type();
  if (same_type && to.is_contiguous() && from.is_contiguous() && to.sizes() == from.sizes())
    return copy_bytes(to, from, non_blocking);
  at::Tensor whole_to, whole_from;
  if (to.is_cuda() || non_blocking) {
    whole_to = to.is_contiguous() ? to : at::empty_like(to, at::MemoryFormat::Contiguous);
    whole_from = from.to(to.scalar_type()).expand_as(to).contiguous();
  } else {
    whole_to = to.is_contiguous() && same_type
                   ? to
                   : at::empty_like(to, to.options().dtype(from.scalar_type()),
                                    at::MemoryFormat::Contiguous);
    whole_from = from.expand_as(to).contiguous();
  }
  whole_to.copy_(whole_from, non_blocking);
  if (!whole_to.is_same(to)) to.copy_(whole_to, non_blocking);
}

at::Tensor& copy(at::Tensor& self, const at::Tensor& from, bool non_blocking) {
  if (self.is_same(from) || self.numel() == 0) return self;
  const c10::cuda::OptionalCUDAGuard guard(self.is_cuda() ? self.device() : from.device());
  if (self.is_cuda() && from.is_cuda())
    copy_on_device(self, from);
  else
    copy_between(self, from, non_blocking);
  return self;
}

at::Scalar item(const at::Tensor& self) {
  const Uncounted uncounted;
  const at::Tensor on_host = at::empty({}, self.options().device(at::kCPU));
  copy_bytes(on_host, self, /*non_blocking=*/false);
  return on_host.item();
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("resize_", TORCH_FN(resize));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  m.impl("copy_", TORCH_FN(copy));
  m.impl("_local_scalar_dense", TORCH_FN(item));
  m.impl("as_strided", TORCH_FN(as_strided));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
}

}  // namespace
}  // namespace snug::simulated
