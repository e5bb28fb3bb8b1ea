// How a libtorch DataPtr refers to its Allocation in the ledger. Internal to this folder.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Allocator.h>

#include "core/memory/ledger.h"

namespace snug::memory {

// On cuda, and on meta, where addresses are null, a DataPtr's context is its Allocation. On the CPU
// it is the data pointer itself, as libtorch's raw_allocate() requires (oneDNN gets its scratch
// memory there).
void delete_cpu_allocation(void* data);
void delete_meta_allocation(void* context);
void delete_cuda_allocation(void* context);
void delete_disk_allocation(void* block);

// The Allocation behind a DiskFile's DataPtr context.
Allocation* disk_allocation_in(void* block);

// The Allocation of CPU memory that our allocator handed out, or null.
Allocation* cpu_allocation_at(const void* data);

// Null for memory of other allocators, which has another deleter.
inline Allocation* allocation_behind(const c10::DataPtr& pointer) {
  const c10::DeleterFnPtr deleter = pointer.get_deleter();
  if (deleter == &delete_cpu_allocation) return cpu_allocation_at(pointer.get_context());
  if (deleter == &delete_disk_allocation) return disk_allocation_in(pointer.get_context());
  const bool ours = deleter == &delete_meta_allocation || deleter == &delete_cuda_allocation;
  return ours ? static_cast<Allocation*>(pointer.get_context()) : nullptr;
}

void install_cpu_allocator();
void install_meta_allocator();
// Pins host memory, so that the GPU copies it asynchronously; false if the driver refuses.
// Unpinning waits until the GPU is done with it.
bool pin_memory(void* data, size_t bytes);
void unpin_memory(void* data);

void install_cuda_allocator();  // does nothing in a build without CUDA
void empty_cuda_cache();
void empty_cpu_cache();

}  // namespace snug::memory
