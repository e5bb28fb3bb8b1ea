// SPDX-License-Identifier: Apache-2.0
#include "core/memory/placement.h"

#include <ATen/ops/empty.h>

#include "core/memory/guards.h"

namespace snug::memory {

at::Tensor empty_on_host(at::IntArrayRef sizes, at::ScalarType type, at::Device device,
                         Category category, HostUse use) {
  const CategoryGuard tag(category);
  const HostGuard host(/*on=*/true, use);
  const PinnedGuard pinned(device.is_cuda());
  const at::Device place = device.is_meta() ? at::kMeta : at::kCPU;
  return at::empty(sizes, at::TensorOptions().device(place).dtype(type));
}

bool is_on_host(const at::Tensor& tensor) {
  const Allocation* allocation = find_allocation(tensor);
  return allocation != nullptr && allocation->ledger == &host_ledger_of(tensor.device().type());
}

void vacate(const at::Tensor& tensor) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(nullptr, tensor.device()));
}

void refill(const at::Tensor& tensor, Category category) {
  const CategoryGuard tag(category);
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(
      c10::GetAllocator(tensor.device().type())->allocate(storage->nbytes()));
}

// Asks the ledger and not the address, which is always null on meta.
bool is_vacant(const at::Tensor& tensor) {
  return tensor.numel() > 0 && find_allocation(tensor) == nullptr &&
         tensor.storage().data() == nullptr;
}

}  // namespace snug::memory
