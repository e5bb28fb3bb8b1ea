// The libtorch side of the ledger: how an allocation hangs on a DataPtr. Internal to this folder.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Allocator.h>

#include "memory/ledger.h"

namespace snug::memory {

// The context of every DataPtr from our allocators is its Allocation; the deleter tells them apart
// from foreign ones.
void delete_cpu_allocation(void* context);
void delete_meta_allocation(void* context);
void delete_cuda_allocation(void* context);

inline Allocation* allocation_behind(const c10::DataPtr& pointer) {
  const c10::DeleterFnPtr deleter = pointer.get_deleter();
  const bool ours = deleter == &delete_cpu_allocation || deleter == &delete_meta_allocation ||
                    deleter == &delete_cuda_allocation;
  return ours ? static_cast<Allocation*>(pointer.get_context()) : nullptr;
}

void install_cpu_allocator();
void install_meta_allocator();
void install_cuda_allocator();  // nothing to do in a build without CUDA

}  // namespace snug::memory
