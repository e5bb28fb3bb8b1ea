// The libtorch side of the ledger: how an allocation hangs on a DataPtr. Internal to this folder.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Allocator.h>

#include "memory/ledger.h"

namespace snug::memory {

// On cuda, and on meta, where addresses are null, a DataPtr's context is its Allocation. On the CPU
// it is the
// data itself: libtorch's raw_allocate(), which oneDNN's scratch memory comes from, insists on
// that.
void delete_cpu_allocation(void* data);
void delete_meta_allocation(void* context);
void delete_cuda_allocation(void* context);
void delete_disk_allocation(void* block);

// The Allocation of what a DiskFile handed out.
Allocation* disk_allocation_in(void* block);

// The Allocation of CPU memory that our allocator handed out, or null.
Allocation* cpu_allocation_at(const void* data);

// Tells our allocators' memory from foreign memory by the deleter.
inline Allocation* allocation_behind(const c10::DataPtr& pointer) {
  const c10::DeleterFnPtr deleter = pointer.get_deleter();
  if (deleter == &delete_cpu_allocation) return cpu_allocation_at(pointer.get_context());
  if (deleter == &delete_disk_allocation) return disk_allocation_in(pointer.get_context());
  const bool ours = deleter == &delete_meta_allocation || deleter == &delete_cuda_allocation;
  return ours ? static_cast<Allocation*>(pointer.get_context()) : nullptr;
}

void install_cpu_allocator();
void install_meta_allocator();
// Lets the GPU copy from and to this host memory by itself; false where the driver refuses. Taking
// it back waits until the GPU is done with it.
bool pin_memory(void* data, size_t bytes);
void unpin_memory(void* data);

void install_cuda_allocator();  // nothing to do in a build without CUDA

}  // namespace snug::memory
