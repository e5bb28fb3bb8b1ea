// For builds without CUDA: there is no CUDA device, and no tensor can be on one.
// SPDX-License-Identifier: Apache-2.0
#include "core/memory/allocators.h"

namespace snug::memory {

void delete_cuda_allocation(void* /*context*/) {}
bool pin_memory(void* /*data*/, size_t /*bytes*/) { return false; }
void unpin_memory(void* /*data*/) {}
void install_cuda_allocator() {}
void empty_cuda_cache() {}
int64_t cuda_reserved() { return 0; }
void limit_cuda_reserved(int64_t /*bytes*/) {}
int64_t cuda_peak_reserved() { return 0; }
int64_t cuda_alloc_retries() { return 0; }

}  // namespace snug::memory
